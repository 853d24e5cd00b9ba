#!/usr/bin/env python3
"""Fits the polynomials of tensor_ir/passes/expand_math*.cpp and writes tensor_ir/passes/math_coefficients.h.

Each fit is weighted least squares on Chebyshev nodes in extended precision, with weights moved towards the largest
errors (Lawson's iteration), which comes close to minimax.  Coefficients are then rounded to the format, from the
lowest power up, the others being fitted again after each.  Run it as `python3 tools/fit_math.py`; it needs mpmath.
"""

import sys
from pathlib import Path

import mpmath as mp

mp.mp.dps = 50


def nodes(low, high, count):
    return [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def round_to(value, bits):
    if value == 0:
        return mp.mpf(0)
    exponent = mp.floor(mp.log(abs(value), 2))
    unit = mp.mpf(2) ** (exponent - bits + 1)
    return mp.nint(value / unit) * unit


def solve(points, targets, weights, powers):
    n = len(powers)
    rows = [[w * x**p for p in powers] for x, w in zip(points, weights, strict=True)]
    a = mp.matrix(n, n)
    b = mp.matrix(n, 1)
    for row, t, w in zip(rows, targets, weights, strict=True):
        for i in range(n):
            b[i] += row[i] * w * t
            for j in range(i, n):
                a[i, j] += row[i] * row[j]
    for i in range(n):
        for j in range(i):
            a[i, j] = a[j, i]
    return list(mp.lu_solve(a, b))


def polynomial(f, low, high, powers, weight, bits, iterations=6):
    """Coefficients of Σ c_p x^p ≈ f with small |error|·weight; the largest such error is printed in bits."""
    points = nodes(mp.mpf(low), mp.mpf(high), 4 * len(powers) + 18)
    targets = [f(x) for x in points]
    base = [weight(x) for x in points]
    lawson = [mp.mpf(1)] * len(points)
    for _ in range(iterations):
        c = solve(points, targets, [b * mp.sqrt(l) for b, l in zip(base, lawson, strict=True)], powers)
        errors = [
            abs(sum(ci * x**p for ci, p in zip(c, powers, strict=True)) - t) * b
            for x, t, b in zip(points, targets, base, strict=True)
        ]
        worst = max(errors)
        lawson = [l * (e / worst + mp.mpf("0.02")) for l, e in zip(lawson, errors, strict=True)]
        total = sum(lawson)
        lawson = [l / total * len(points) for l in lawson]
    rounded = []
    remaining = list(powers)
    rest = list(targets)
    weights = [b * mp.sqrt(l) for b, l in zip(base, lawson, strict=True)]
    while remaining:
        c = solve(points, rest, weights, remaining)
        value = round_to(c[0], bits)
        rounded.append(value)
        p = remaining.pop(0)
        rest = [r - value * x**p for r, x in zip(rest, points, strict=True)]
    error = max(abs(r) * b for r, b in zip(rest, base, strict=True))
    return rounded, error


def odd_even(f, high, count, weight, bits):
    """f as a polynomial of z = x² on 0 < z ≤ high²."""
    return polynomial(f, mp.mpf("1e-12"), mp.mpf(high) ** 2, list(range(count)), weight, bits)


def literal(value, bits):
    return float(value).hex()


ALIAS = {24: "f32", 53: "f64"}
lines = []


def emit(name, comment, bits, coefficients, error):
    report = f"{name}_{ALIAS[bits]}: {len(coefficients)} coefficients, error 2^{float(mp.log(error, 2)):.1f}"
    print(report, file=sys.stderr)
    lines.append(f"// {comment}; error 2^{float(mp.log(error, 2)):.1f}")
    body = ", ".join(literal(c, bits) for c in coefficients)
    lines.append(f"inline constexpr double {name}_{ALIAS[bits]}[] = {{{body}}};")


def main():
    for bits, sizes in (
        (24, dict(exp=5, expm1=5, exp2=6, log=8, log2=8, sin=3, cos=3, tan=7, atan=9, asin=5, sinh=3)),
        (53, dict(exp=10, expm1=10, exp2=12, log=8, log2=8, sin=6, cos=6, tan=14, atan=19, asin=12, sinh=6)),
    ):
        half_ln2 = mp.log(2) / 2 + mp.mpf("0.001")

        # exp(r) = 1 + r + r²·P(r)
        def f(r):
            return (mp.exp(r) - 1 - r) / r**2

        c, e = polynomial(f, -half_ln2, half_ln2, range(sizes["exp"]), lambda r: r * r / mp.exp(r), bits)
        emit("exp", "exp(r) = 1 + r + r²·P(r), |r| ≤ ln(2)/2", bits, c, e)
        # the same with an error relative to expm1
        c, e = polynomial(f, -half_ln2, half_ln2, range(sizes["expm1"]), lambda r: abs(r * r / mp.expm1(r)), bits)
        emit("expm1", "expm1(r) = r + r²·P(r), |r| ≤ ln(2)/2, relative to expm1", bits, c, e)
        half = mp.mpf("0.501")

        def f(r):
            return (mp.mpf(2) ** r - 1) / r

        c, e = polynomial(f, -half, half, range(sizes["exp2"]), lambda r: abs(r) / mp.mpf(2) ** r, bits)
        emit("exp2", "2^r = 1 + r·P(r), |r| ≤ 1/2", bits, c, e)
        if bits == 24:
            low, high = mp.sqrt(mp.mpf("0.5")) - 1 - mp.mpf("0.001"), mp.sqrt(2) - 1 + mp.mpf("0.001")

            def f(x):
                return (mp.log1p(x) - x + x * x / 2) / x**3

            c, e = polynomial(f, low, high, range(sizes["log"]), lambda x: abs(x**3 / mp.log1p(x)), bits)
            emit("log", "log(1 + x) = x − x²/2 + x³·P(x), √½ ≤ 1 + x ≤ √2", bits, c, e)
        s = mp.mpf("0.1717")

        def g(z):
            return (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z * 2

        c, e = odd_even(g, s, sizes["log"] if bits == 53 else 4, lambda z: z / 2, bits)
        emit("log_ratio", "2·atanh(s) = 2s + s³·P(s²), |s| ≤ (√2 − 1)/(√2 + 1)", bits, c, e)
        quarter = mp.pi / 4 + mp.mpf("0.001")

        def f(z):
            return (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

        c, e = odd_even(f, quarter, sizes["sin"], lambda z: z / (mp.sin(mp.sqrt(z)) / mp.sqrt(z)), bits)
        emit("sin", "sin(r) = r + r³·P(r²), |r| ≤ π/4", bits, c, e)

        def f(z):
            return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2

        c, e = odd_even(f, quarter, sizes["cos"], lambda z: z * z / mp.cos(mp.sqrt(z)), bits)
        emit("cos", "cos(r) = 1 − r²/2 + r⁴·P(r²), |r| ≤ π/4", bits, c, e)

        def f(z):
            return (mp.tan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

        c, e = odd_even(f, quarter, sizes["tan"], lambda z: z / (mp.tan(mp.sqrt(z)) / mp.sqrt(z)), bits)
        emit("tan", "tan(r) = r + r³·P(r²), |r| ≤ π/4", bits, c, e)

        def f(z):
            return (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

        c, e = odd_even(f, mp.mpf(1), sizes["atan"], lambda z: z / (mp.atan(mp.sqrt(z)) / mp.sqrt(z)), bits)
        emit("atan", "atan(x) = x + x³·P(x²), |x| ≤ 1", bits, c, e)

        def f(z):
            return (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

        c, e = odd_even(f, mp.mpf("0.5"), sizes["asin"], lambda z: z / (mp.asin(mp.sqrt(z)) / mp.sqrt(z)), bits)
        emit("asin", "asin(x) = x + x³·P(x²), |x| ≤ 1/2", bits, c, e)

        def f(z):
            return (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z

        c, e = odd_even(f, mp.mpf(1), sizes["sinh"], lambda z: z / (mp.sinh(mp.sqrt(z)) / mp.sqrt(z)), bits)
        emit("sinh", "sinh(x) = x + x³·P(x²), |x| ≤ 1", bits, c, e)

    # erf in f32: x + x·P(x²) below 1, and 1 − 2^P(x) above.
    def f(z):
        return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1

    c, e = odd_even(f, mp.mpf(1), 6, lambda z: 1 / (f(z) + 1), 24)
    emit("erf_small", "erf(x) = x + x·P(x²), |x| ≤ 1", 24, c, e)

    def g(a):
        return mp.log(mp.erfc(a), 2)

    c, e = polynomial(g, 1, mp.mpf("3.95"), range(6), lambda a: mp.erfc(a) * mp.log(2), 24)
    emit("erf_large", "log2(erfc(x)) = P(x), 1 ≤ x ≤ 3.95, error absolute in erf", 24, c, e)

    def f(r):
        return (mp.mpf(2) ** r - 1) / r

    c, e = polynomial(f, -mp.mpf("0.5"), mp.mpf("0.5"), range(5), lambda r: abs(r) / mp.mpf(2) ** r, 24)
    emit("exp2_short", "2^r = 1 + r·P(r), |r| ≤ 1/2", 24, c, e)

    # The normal distribution in f32, above its mean: 1 − 2^(P(x) − 1).  Beyond 6, where it is 1, P only stays near.
    def g(a):
        return mp.log(mp.erfc(a / mp.sqrt(2)), 2)

    def weight(a):
        return mp.log(2) * (mp.erfc(a / mp.sqrt(2)) / 2 - mp.mpf(2) ** -23 / (g(a) - 1))

    c, e = polynomial(lambda a: g(a) / a, mp.mpf("1e-9"), 15, range(8), lambda a: a * weight(a), 24, iterations=24)
    emit("normal_tail", "log2(2·(1 − Φ(x))) = x·P(x), 0 ≤ x ≤ 15, error absolute in Φ", 24, c, e)

    # erf in f64: x + x·P(x²) below 3/2, and 1 − exp(−P) above.
    def f(z):
        return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1

    c, e = odd_even(f, mp.mpf("1.5"), 19, lambda z: 1 / (f(z) + 1), 53)
    emit("erf_small", "erf(x) = x + x·P(x²), |x| ≤ 3/2", 53, c, e)

    def g(t):
        return -mp.log(mp.erfc((t + mp.mpf("1.640625")) / mp.mpf("0.4375")))

    c, e = polynomial(g, mp.mpf("-0.985"), mp.mpf("0.985"), range(19), lambda t: mp.exp(-g(t)), 53)
    emit("erf_large", "−log(erfc(x)) = P(0.4375·x − 1.640625), 3/2 ≤ x ≤ 6, error absolute in erf", 53, c, e)
    for bits, part in ((24, 15), (53, 32)):  # n·high is exact for every exponent n
        high = mp.floor(mp.log(2) * mp.mpf(2) ** part) / mp.mpf(2) ** part
        lines.append("// ln 2 = high + low, π/2 = high + low, log2 e = high + low")
        for name, value, first in (
            ("ln2", mp.log(2), high),
            ("half_pi", mp.pi / 2, round_to(mp.pi / 2, bits)),
            ("log2_e", 1 / mp.log(2), round_to(1 / mp.log(2), bits)),
        ):
            low = round_to(value - first, bits)
            lines.append(
                f"inline constexpr double {name}_{ALIAS[bits]}[] = {{{literal(first, bits)}, {literal(low, bits)}}};"
            )
    mp.mp.dps = 420
    words = 42
    number = int(mp.floor(mp.mpf(2) / mp.pi * mp.mpf(2) ** (32 * words)))
    hexes = [f"0x{(number >> (32 * (words - 1 - i))) & 0xFFFFFFFF:08x}" for i in range(words)]
    lines.append("// 2/π, from the point on")
    lines.append(f"inline constexpr uint32_t two_over_pi[] = {{{', '.join(hexes)}}};")
    target = Path(__file__).resolve().parent.parent / "tensor_ir/passes/math_coefficients.h"
    target.write_text(
        "// Made by tools/fit_math.py; lowest power first.  "
        "Errors are relative to the function unless said otherwise, before\n"
        "// rounding in evaluation.\n#pragma once\n\n#include <cstdint>\n\nnamespace tw::math {\n\n"
        + "\n".join(lines)
        + "\n\n}  // namespace tw::math\n"
    )


if __name__ == "__main__":
    main()
