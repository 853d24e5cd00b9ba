"""Charts of pages that are read without a network.  Plotly draws; it is asked for only here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .error import Error
from .html_page import html_page

LONGEST_NAME = 60
LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.0}
ACCENT = "#c2410c"


def plotly() -> Any:
    """plotly.graph_objects; Error(TW1001) where it is not installed."""
    try:
        import plotly.graph_objects as figures
    except ImportError:
        raise Error("TW1001", "the page needs plotly\nhelp: pip install tilewright[report]") from None
    return figures


def chart(title: str, text: str, traces: Sequence[Any], height: int = 380, **layout: Any) -> str:
    """A piece of HTML; empty where there is nothing to show."""
    if not traces:
        return ""
    figure = plotly().Figure(traces)
    figure.update_layout(
        template="plotly_white", height=height, margin={"l": 70, "r": 20, "t": 40, "b": 50}, legend=LEGEND, **layout
    )
    body = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return f"<article><h3>{escape(title)}</h3><p>{escape(text)}</p>{body}</article>"


def page_of_charts(title: str, body: str) -> str:
    from plotly.offline import get_plotlyjs

    return html_page(title, body, f"<script>{get_plotlyjs()}</script>")


def short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


@dataclass(frozen=True)
class Worked:
    """A kernel that computed so much in so many seconds."""

    name: str
    seconds: float
    flops: float
    bytes: float
    share: float  # of the time of all


def roofline(groups: dict[tuple[str, str], list[Worked]], peak: float, bandwidth: float, note: str = "") -> str:
    """Kernels between a machine's roofs (Williams, Waterman and Patterson, 2009), by (legend, colour).

    `peak` in operations, `bandwidth` in bytes a second; without them, kernels alone.  What computes or moves nothing
    has no place in it.
    """
    figures, traces, intensities = plotly(), [], []
    for (name, color), all_of_them in groups.items():
        kernels = [k for k in all_of_them if k.seconds > 0 and k.flops > 0 and k.bytes > 0]
        intensities += [k.flops / k.bytes for k in kernels]
        bounds = [min(peak, k.flops / k.bytes * bandwidth) for k in kernels]
        of_bound = [
            f", {k.flops / k.seconds / bound:.0%} of its bound" if bound > 0 else ""
            for k, bound in zip(kernels, bounds, strict=True)
        ]
        traces.append(
            figures.Scatter(
                x=[k.flops / k.bytes for k in kernels],
                y=[k.flops / k.seconds / 1e9 for k in kernels],
                mode="markers",
                name=name,
                hovertext=[
                    f"{short(k.name)}: {k.seconds * 1e6:.1f} µs{share}"
                    for k, share in zip(kernels, of_bound, strict=True)
                ],
                marker={"color": color, "opacity": 0.7, "size": [6 + 40 * math.sqrt(k.share) for k in kernels]},
            )
        )
    if not intensities:
        return ""
    if peak > 0 and bandwidth > 0:
        ridge = peak / bandwidth
        low, high = min(ridge, *intensities) / 2, max(ridge, *intensities) * 2
        traces.append(
            figures.Scatter(
                x=[low, ridge, high],
                y=[low * bandwidth / 1e9, peak / 1e9, peak / 1e9],
                mode="lines",
                line={"color": ACCENT},
                name=f"{peak / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s",
            )
        )
    return chart(
        "Roofline",
        "Operations a second over operations a byte of inputs and outputs; the larger a disc, the more of the time. "
        f"The line is what the machine was measured to do at most (Williams, Waterman and Patterson, 2009). {note}",
        traces,
        height=460,
        xaxis={"type": "log", "title": "operations a byte"},
        yaxis={"type": "log", "title": "GFLOP/s"},
    )
