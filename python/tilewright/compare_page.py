"""What `tw compare` found, as one HTML page that needs no network."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from .html_page import html_page

if TYPE_CHECKING:
    from .comparison import Comparison, NodeDifference

OWN, TOTAL, LIMIT = "#1d4ed8", "#cbd5e1", "#c2410c"
WIDTH, HEIGHT, LEFT, BOTTOM = 1060, 280, 60, 30
LEAST = 1e-10  # what the chart draws at the bottom: equal, or nearly so


def height_of(relative: float, top: float) -> float:
    """Between 0 and 1 on a logarithmic scale."""
    bounded = min(max(relative, LEAST), top)
    return math.log(bounded / LEAST) / math.log(top / LEAST)


def chart(comparison: Comparison) -> str:
    """Bars by value, in the order of nodes: what each adds to equal inputs in front of what it is off altogether."""
    rows = comparison.rows
    finite = [r for row in rows for r in (row.total.relative, own_of(row)) if math.isfinite(r)]
    top = 10 ** math.ceil(math.log10(max([*finite, 10 * comparison.node_tolerance, 10 * LEAST])))
    step = (WIDTH - LEFT) / max(len(rows), 1)

    def y(relative: float) -> float:
        return (HEIGHT - BOTTOM) * (1 - height_of(relative, top))

    def bar(at: int, relative: float, color: str, part: float, title: str) -> str:
        place = f'x="{LEFT + at * step:.2f}" y="{y(relative):.2f}" width="{step * part:.2f}"'
        height = HEIGHT - BOTTOM - y(relative)
        return f'<rect {place} height="{height:.2f}" fill="{color}"><title>{escape(title)}</title></rect>'

    parts = []
    for exponent in range(round(math.log10(LEAST)), round(math.log10(top)) + 1, 2):
        line = y(10.0**exponent)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{line:.2f}" y2="{line:.2f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{line + 4:.2f}" text-anchor="end">1e{exponent}</text>')
    for at, row in enumerate(rows):
        title = f"{row.node} ({row.operator}) {row.output}: own {own_of(row):.2e}, in all {row.total.relative:.2e}"
        parts.append(bar(at, row.total.relative, TOTAL, 0.9, title))
        parts.append(bar(at, own_of(row), LIMIT if row.differs else OWN, 0.6, title))
    limit = y(comparison.node_tolerance)
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{limit:.2f}" y2="{limit:.2f}" stroke="{LIMIT}" stroke-dasharray="6 4"/>'
    )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">nodes, in their order</text>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="12" fill="#4b5563">'
        f"<title>Differences by node</title>{''.join(parts)}</svg>"
    )


def own_of(row: NodeDifference) -> float:
    return (row.total if row.own is None else row.own).relative


def table(comparison: Comparison) -> str:
    from .comparison import verdict

    lines = ["<tr><th>node</th><th>operator</th><th>output</th><th>own</th><th>share</th><th>in all</th><th></th></tr>"]
    for row in comparison.rows:
        cells = (
            row.node,
            row.operator,
            row.output,
            "known before" if row.own is None else f"{row.own.absolute:.2e}",
            f"{own_of(row):.1e}",
            f"{row.total.absolute:.2e}",
            verdict(row),
        )
        style = f' style="color:{LIMIT}"' if row.differs else ""
        lines.append(f"<tr{style}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def page(comparison: Comparison) -> str:
    verdict = "No node differs." if comparison.ok else str(comparison.first)
    proposal = f"<p>{escape(str(comparison.proposal))}</p>" if comparison.proposal else ""
    outputs = "".join(
        f"<tr><td>{escape(name)}</td><td>{d.absolute:.3g}</td><td>{d.relative:.3g}</td></tr>"
        for name, d in comparison.outputs.items()
    )
    body = (
        f"<p>{escape(comparison.ours)} against {escape(comparison.theirs)}</p>"
        f"<h2>Where it begins</h2><pre>{escape(verdict)}</pre>{proposal}"
        f"<h2>Outputs</h2><table><tr><th>output</th><th>difference</th><th>share</th></tr>{outputs}</table>"
        f"<h2>Nodes</h2><p>{escape(comparison.explanation)} Blue: a node's own, as a share of the magnitude; grey: in "
        f"all, with what it reads; the dashed line is the tolerance of nodes.</p>{chart(comparison)}{table(comparison)}"
    )
    return html_page("Differences by node", body)
