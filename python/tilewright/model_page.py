"""What is known of a model before it is compiled, as one HTML page that needs no network (`tw explain --html`).

    tw.load("model.onnx").explain_html("model.html")

It shows which share of the nodes is compiled, and what becomes of the others; the parts that follow one another where
some are not compiled, and what passes between them; and what each node costs, as the graph stands before anything is
fused, at typical sizes of open dimensions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from html import escape
from typing import Any

from . import _core
from .fallback import Fallback, levels_of
from .html_page import html_page
from .operators import Operator, lowered_by

OURS, HOST, REFUSED, QUIET = "#1d4ed8", "#a16207", "#c2410c", "#e5e7eb"
SHOWN_NODES = 25  # in the table, those that cost most
SHOWN_NAMES = 3  # of a part
LONGEST = 50  # letters of a line in a box
NAMES = {OURS: "compiled", HOST: "functions of the host", REFUSED: "not supported"}
WIDTH, BOX_WIDTH, BOX_HEIGHT, GAP = 1060, 400, 76, 44
COLUMNS = (20, WIDTH - BOX_WIDTH - 20)  # of what is compiled, and of what is not
STRIP_HEIGHT = 160


@dataclass
class Row:
    """A node of the model."""

    name: str
    operator: str
    inputs: list[tuple[str, int]]
    outputs: list[tuple[str, int]]
    flops: int
    parameters: int  # bytes
    written: int  # bytes
    color: str = OURS
    inside: list[str] = field(default_factory=list)  # of a part: "name (Operator)" of its nodes

    def labels(self) -> list[str]:
        return self.inside or [f"{self.name} ({self.operator})"]


@dataclass
class Part:
    """Nodes between which no path changes sides."""

    rows: list[Row] = field(default_factory=list)
    passes: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))  # from a part: type by value


def scaled(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G"):  # noqa: B007
        if value < 1000:
            break
        value /= 1000
    else:
        prefix = "T"
    return f"{value:.3g} {prefix}{unit}"


def rows_of(model: Any, operators: tuple[Operator, ...], fallback: Fallback | None) -> list[Row]:
    rows = [Row(*row, *cost) for row, cost in zip(model.rows, model.costs, strict=True)]
    refused = {node for _, node, _ in model.refusals}
    outer = {node.partition("/")[0] for node in refused} | refused
    on_host = {each.full_name for each in operators if each.expression is None}
    nodes_of = {part.name: part.nodes for part in fallback.parts} if fallback else {}
    for row in rows:
        if row.name in outer:
            row.color = REFUSED
        elif row.operator in on_host:
            row.color, row.inside = HOST, nodes_of.get(row.name, [])
    return rows


def parts_of(rows: list[Row], types: list[str]) -> list[Part]:
    """By level: each part reads what earlier ones make."""
    maker = {name: i for i, row in enumerate(rows) for name, _ in row.outputs if name}
    makers = [{maker[name] for name, _ in row.inputs if name in maker} for row in rows]
    levels = levels_of(makers, {i for i, row in enumerate(rows) if row.color != OURS})
    used = sorted(set(levels))
    parts = [Part() for _ in used]
    place = [used.index(level) for level in levels]
    for row, at in zip(rows, place, strict=True):
        parts[at].rows.append(row)
        for name, value in row.inputs:
            if name in maker and place[maker[name]] != at:
                parts[at].passes[place[maker[name]]][name] = types[value] if value >= 0 else "not known"
    return parts


def box(at: int, part: Part) -> str:
    rows, color = part.rows, part.rows[0].color
    is_ours = color == OURS
    x, y = COLUMNS[not is_ours], at * (BOX_HEIGHT + GAP)
    names = [label for row in rows for label in row.labels()]
    counts = Counter(row.operator for row in rows).most_common(SHOWN_NAMES)
    shown = ", ".join(f"{op} {n}" for op, n in counts) if is_ours or len(names) > SHOWN_NAMES else ", ".join(names)
    who = "ONNX Runtime" if rows[0].inside else NAMES[color]
    lines = (
        f"{len(names)} node{'s' * (len(names) > 1)}, {who}",
        shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…",
        f"{scaled(sum(row.flops for row in rows), 'FLOP')}, {scaled(sum(row.parameters for row in rows), 'B')} known"
        if is_ours
        else "",
    )
    text = "".join(
        f'<text x="{x + 12}" y="{y + 22 + 20 * k}"{" font-weight=" + chr(34) + "600" + chr(34) if k == 0 else ""}>'
        f"{escape(line)}</text>"
        for k, line in enumerate(lines)
    )
    return (
        f'<g><rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="white" stroke="{color}" '
        f'stroke-width="2"/><title>{escape(chr(10).join(names[:200]))}</title>{text}</g>'
    )


def arrow(source: int, target: int, sides: list[int], values: dict[str, str]) -> str:
    """From a box's lower edge to another's upper one."""
    x0, x1 = (COLUMNS[sides[at]] + BOX_WIDTH / 2 for at in (source, target))
    y0, y1 = source * (BOX_HEIGHT + GAP) + BOX_HEIGHT, target * (BOX_HEIGHT + GAP)
    middle = (x0 + x1) / 2 if x0 != x1 else WIDTH / 2  # around what lies between
    bend = f"C {x0} {y0 + GAP}, {middle} {(y0 + y1) / 2}, {middle} {(y0 + y1) / 2} S {x1} {y1 - GAP}, {x1} {y1}"
    title = "\n".join(f"{name}: {kind}" for name, kind in values.items())
    label = next(iter(values.items())) if len(values) == 1 else None
    said = f"{label[0]}: {label[1]}" if label else f"{len(values)} values"
    return (
        f'<path d="M {x0} {y0} {bend}" fill="none" stroke="#64748b" stroke-width="1.5" marker-end="url(#tip)">'
        f'<title>{escape(title)}</title></path><text x="{middle}" y="{(y0 + y1) / 2 + 4}" text-anchor="middle" '
        f'font-size="11" fill="#64748b" paint-order="stroke" stroke="white" stroke-width="4">{escape(said[:60])}</text>'
    )


def diagram(parts: list[Part]) -> str:
    sides = [int(part.rows[0].color != OURS) for part in parts]
    arrows = "".join(
        arrow(source, at, sides, values) for at, part in enumerate(parts) for source, values in part.passes.items()
    )
    boxes = "".join(box(at, part) for at, part in enumerate(parts))
    height = len(parts) * (BOX_HEIGHT + GAP) - GAP + 4
    tip = (
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#64748b"/></marker></defs>'
    )
    return (
        f'<svg viewBox="0 -2 {WIDTH} {height}" role="img" font-size="13" fill="#111827">'
        f"<title>Parts and what passes between them</title>{tip}{arrows}{boxes}</svg>"
    )


def coverage(rows: list[Row]) -> str:
    counts = Counter(row.color for row in rows for _ in row.labels())
    total = sum(counts.values())
    bars, x = [], 0.0
    for color in NAMES:
        width = WIDTH * counts[color] / max(total, 1)
        bars.append(f'<rect x="{x:.2f}" y="0" width="{width:.2f}" height="18" fill="{color}"/>')
        x += width
    legend = ", ".join(
        f'<span style="color:{color}">{counts[color]} {name}</span>' for color, name in NAMES.items() if counts[color]
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} 18" role="img"><title>Coverage</title>{"".join(bars)}</svg>'
        f"<p>Of {total} nodes: {legend}.</p>"
    )


def strip(rows: list[Row]) -> str:
    """The nodes in their order: arithmetic upwards, bytes written downwards."""
    step = WIDTH / max(len(rows), 1)
    most = [max([1, *(row.flops for row in rows)]), max([1, *(row.written for row in rows)])]
    half, parts = STRIP_HEIGHT / 2, []
    for at, row in enumerate(rows):
        place = f'x="{at * step:.2f}" width="{max(step * 0.9, 0.5):.2f}"'
        up, down = half * row.flops / most[0], half * row.written / most[1]
        title = f"{row.name} ({row.operator}): {scaled(row.flops, 'FLOP')}, writes {scaled(row.written, 'B')}"
        parts.append(
            f'<g><title>{escape(title)}</title><rect {place} y="0" height="{STRIP_HEIGHT}" fill="transparent"/>'
            f'<rect {place} y="{half - up:.2f}" height="{up:.2f}" fill="{row.color}"/>'
            f'<rect {place} y="{half:.2f}" height="{down:.2f}" fill="#94a3b8"/></g>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {STRIP_HEIGHT}" role="img"><title>Cost by node</title>'
        f'<line x1="0" x2="{WIDTH}" y1="{half}" y2="{half}" stroke="{QUIET}"/>{"".join(parts)}</svg>'
    )


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    def cells(tag: str, values: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values) + "</tr>"

    return f"<table>{cells('th', head)}{''.join(cells('td', line) for line in lines)}</table>"


def costs(rows: list[Row]) -> str:
    total = max(1, sum(row.flops for row in rows))
    by_operator: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_operator[row.operator].append(row)

    def line(name: tuple[str, ...], of: list[Row]) -> tuple[str, ...]:
        flops = sum(row.flops for row in of)
        known, written = sum(row.parameters for row in of), sum(row.written for row in of)
        return *name, scaled(flops, "FLOP"), f"{100 * flops / total:.1f} %", scaled(known, "B"), scaled(written, "B")

    def weight(of: list[Row]) -> tuple[int, int]:
        return sum(row.flops for row in of), sum(row.written for row in of)

    head = ("work", "share", "known values", "written")
    operators = sorted(by_operator.items(), key=lambda item: weight(item[1]), reverse=True)
    nodes = sorted(rows, key=lambda row: weight([row]), reverse=True)[:SHOWN_NODES]
    return (
        "<h3>By operator</h3>"
        + table(("operator", "nodes", *head), [line((op, str(len(of))), of) for op, of in operators])
        + f"<h3>The {len(nodes)} nodes that cost most</h3>"
        + table(("node", "operator", *head), [line((row.name, row.operator), [row]) for row in nodes])
    )


def refusals(model: Any) -> str:
    by_reason: dict[tuple[str, str], list[str]] = defaultdict(list)
    for operator, node, why in model.refusals:
        by_reason[operator, why or "the operator is not known"].append(node)
    lines: list[tuple[str, ...]] = [
        (operator, str(len(nodes)), why, ", ".join(nodes[:SHOWN_NAMES]) + (", …" if len(nodes) > SHOWN_NAMES else ""))
        for (operator, why), nodes in by_reason.items()
    ]
    return "<h3>Not supported</h3>" + table(("operator", "nodes", "why", "which"), lines)


def facts_of(model: Any, operators: tuple[Operator, ...], fallback: Fallback | None = None) -> dict[str, Any]:
    """The same for scripts: counts of operators, costs, what is not supported, and what ONNX Runtime computes."""
    rows = rows_of(model, operators, fallback)
    return {
        "operators": dict(Counter(row.operator for row in rows)),
        "flops": sum(row.flops for row in rows),
        "parameter_bytes": sum(row.parameters for row in rows),
        "refused": [dict(zip(("operator", "node", "why"), refusal, strict=True)) for refusal in model.refusals],
        "fallback": [{"name": part.name, "nodes": part.nodes} for part in fallback.parts] if fallback else [],
        "nodes": [
            {
                "name": row.name,
                "operator": row.operator,
                "flops": row.flops,
                "parameter_bytes": row.parameters,
                "written_bytes": row.written,
            }
            for row in rows
        ],
    }


def page(
    source: tuple[str, bytes],
    shapes: dict[str, Any],
    operators: tuple[Operator, ...],
    fallback: Fallback | None = None,
    constants: dict[str, Any] | None = None,
) -> str:
    """As Model has them."""
    model = _core.read_onnx(*source, shapes, lowered_by(operators), True, constants or {})
    rows = rows_of(model, operators, fallback)
    parts = parts_of(rows, model.types)
    body = f"<pre>{escape(model.text)}</pre><h2>Coverage</h2>{coverage(rows)}"
    if model.refusals:
        body += refusals(model)
    if fallback:
        body += f"<pre>{escape(str(fallback))}</pre>"
    if len(parts) > 1:
        body += (
            "<h2>Parts</h2><p>Nodes between which no path changes sides are together. An arrow is what passes from a "
            f"part to another; hold the pointer over it, or over a part, for names and types.</p>{diagram(parts)}"
        )
    body += (
        "<h2>Cost</h2><p>Each node for itself, as the graph stands before anything is fused, at typical sizes of open "
        "dimensions: arithmetic upwards, bytes written downwards, in the order of the nodes. What a function of the "
        f"host computes is not counted.</p>{strip(rows)}{costs(rows)}"
    )
    return html_page("What the model is made of", body)
