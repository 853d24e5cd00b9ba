"""The roofline of a run as one SVG file (Williams, Waterman and Patterson, 2009).

Across: operations a byte of inputs and outputs.  Up: operations a second.  A kernel below the slope is bound by memory,
one below the ceiling by arithmetic; the larger its disc, the more of the run's time it takes.  Those that take most are
numbered and named below; a browser names every disc under the pointer.
"""

from __future__ import annotations

import math
from html import escape

from .profile import Kernel, Profile

NAMED = 10  # kernels
LINE = 18
WIDTH, HEIGHT = 1000, 640 + NAMED * LINE
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 70, 90 + NAMED * LINE
DECADES = 4  # below the ceiling; what is slower lies on the lower edge
COMPUTE, MEMORY, GRID, TEXT = "#c2410c", "#1d4ed8", "#e5e7eb", "#111827"


class Axis:
    """Logarithmic, from a power of ten to another."""

    def __init__(self, values: list[float], start: float, end: float):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def text(x: float, y: float, content: str, anchor: str = "start", size: int = 13, color: str = TEXT) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="{size}" fill="{color}">{escape(content)}</text>'


def line(x0: float, y0: float, x1: float, y1: float, color: str, width: float) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{color}" stroke-width="{width}"/>'


def decimal(value: float) -> str:
    return f"{value:g}" if value >= 1e-3 else f"{value:.0e}"


def svg(profile: Profile, peak: float, bandwidth: float, title: str) -> str:
    """`peak` in operations, `bandwidth` in bytes a second."""
    kernels = [k for k in profile.kernels if k.seconds > 0 and k.flops > 0 and k.bytes > 0]
    intensities = [k.flops / k.bytes for k in kernels]
    ridge = peak / bandwidth
    x = Axis([*intensities, ridge, ridge * 4], LEFT, WIDTH - RIGHT)
    rates = [max(k.flops / k.seconds, peak / 10**DECADES) / 1e9 for k in kernels]
    y = Axis([*rates, peak / 1e9], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 30, title, size=17),
        text(LEFT, 50, f"{len(kernels)} kernels that compute, of {len(profile.kernels)}; discs by their share of time"),
    ]
    for value in x.decades():
        parts.append(line(x.at(value), TOP, x.at(value), HEIGHT - BOTTOM, GRID, 1))
        parts.append(text(x.at(value), HEIGHT - BOTTOM + 20, decimal(value), "middle"))
    for value in y.decades():
        parts.append(line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value), GRID, 1))
        parts.append(text(LEFT - 8, y.at(value) + 4, decimal(value), "end"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 40, "operations a byte", "middle"))
    parts.append(text(LEFT - 8, TOP - 12, "GFLOP/s", "end"))
    parts += roofs(x, y, peak, bandwidth, ridge)
    parts += discs(kernels, x, y, peak, bandwidth, profile.seconds)
    return "\n".join([*parts, "</svg>"]) + "\n"


def roofs(x: Axis, y: Axis, peak: float, bandwidth: float, ridge: float) -> list[str]:
    top = y.at(peak / 1e9)
    # The slope begins where it enters the picture: at the left edge, or at the bottom.
    first = max(10.0**x.low, 10.0**y.low * 1e9 / bandwidth)
    start = (x.at(first), y.at(first * bandwidth / 1e9))
    return [
        line(*start, x.at(ridge), top, MEMORY, 2),
        line(x.at(ridge), top, WIDTH - RIGHT, top, COMPUTE, 2),
        text(WIDTH - RIGHT, top - 8, f"{peak / 1e9:.0f} GFLOP/s", "end", color=COMPUTE),
        text(x.at(first * 2) + 10, y.at(first * 2 * bandwidth / 1e9) + 14, f"{bandwidth / 1e9:.1f} GB/s", color=MEMORY),
    ]


def discs(kernels: list[Kernel], x: Axis, y: Axis, peak: float, bandwidth: float, total: float) -> list[str]:
    """Large ones first, so that small ones lie above them; numbers last."""
    parts, numbers = [], []
    for number, k in enumerate(sorted(kernels, key=lambda k: -k.seconds), 1):
        intensity, rate = k.flops / k.bytes, k.flops / k.seconds
        roof = min(peak, intensity * bandwidth)
        color = COMPUTE if intensity * bandwidth >= peak else MEMORY
        cx, cy, radius = x.at(intensity), y.at(rate / 1e9), 3 + 40 * math.sqrt(k.seconds / total)
        figures = f"{k.seconds * 1e6:.1f} µs, {rate / 1e9:.1f} GFLOP/s, {rate / roof:.0%} of its bound"
        parts.append(
            f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{radius:.1f}" fill="{color}" fill-opacity="0.35" '
            f'stroke="{color}"><title>{escape(f"{k.name}: {figures}")}</title></circle>'
        )
        if number <= NAMED:
            name = k.name if len(k.name) <= 80 else k.name[:79] + "…"
            height = HEIGHT - BOTTOM + 55 + number * LINE
            numbers.append(text(cx, cy + 4, str(number), "middle", 11))
            numbers.append(text(LEFT, height, str(number), "end", 12))
            numbers.append(text(LEFT + 12, height, f"{figures}: {name}", size=12))
    return parts + numbers
