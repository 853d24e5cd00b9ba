"""What notebooks show of models, executables and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape


class ShownAsText:
    """A result whose text is laid out."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def signature(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> list[tuple[str, str]]:
    rows = [("input", f"{name}: {kind}") for name, kind in inputs.items()]
    return rows + [("output", f"{name}: {kind}") for name, kind in outputs.items()]


def bars(columns: tuple[str, ...], rows: Iterable[tuple[float, tuple[str, ...]]]) -> str:
    """A table each of whose rows begins with a bar of a share, 0 to 1."""
    head = "".join(f'<th style="text-align:left">{escape(column)}</th>' for column in ("", *columns))
    body = "".join(
        '<tr><td style="text-align:left"><div style="background:#1d4ed8;height:.7em;width:'
        f'{8 * share:.2f}em"></div></td>'
        + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for share, cells in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
