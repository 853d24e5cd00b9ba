"""Tensors as bytes: their sizes, how they differ, and .npy files of them."""

from __future__ import annotations

import math
import struct
from array import array
from typing import Any

Facts = dict[str, Any]

# Of floats: as array.array has them, and the signed integers of the same width.
FLOATS = {"f64": ("d", "q"), "f32": ("f", "i"), "f16": ("e", "h"), "bf16": ("", "h")}
INTEGERS = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "bool": "B"}
BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i16": 2, "i32": 4, "i64": 8, "u16": 2, "u32": 4, "u64": 8}
NUMPY = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<V2", "bool": "|b1"}


def byte_size(tensor: Facts) -> int:
    """Of a tensor with this dtype and shape; elements of types that are not named take a byte."""
    return math.prod(tensor["shape"]) * BYTES.get(tensor["dtype"], 1)


def numbers(dtype: str, data: bytes) -> list[Any]:
    if dtype == "bf16":
        return array("f", array("I", [bits << 16 for bits in array("H", data)]).tobytes()).tolist()
    if dtype == "f16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    return array(FLOATS[dtype][0] if dtype in FLOATS else INTEGERS.get(dtype, "B"), data).tolist()


def places(dtype: str, data: bytes) -> list[int]:
    """Of floats their places among all floats of the type, in order: neighbours are 1 apart, both zeros are 0."""
    low = (1 << (8 * BYTES[dtype] - 1)) - 1
    return [bits if bits >= 0 else -(bits & low) for bits in array(FLOATS[dtype][1], data)]


def compare(expected: bytes, actual: bytes, output: Facts) -> Facts:
    """How many elements are beyond what the output's facts allow, the worst of them, and how far floats are off.

    Allowed is what is off by `absolute` + `relative` of the number, or by `ulps` floats of the type.  NaN stands for
    any NaN; with `zero_signs`, 0 and -0 are different.
    """
    found: Facts = {"elements": math.prod(output["shape"]), "wrong": 0, "largest_difference": 0.0, "largest_ulps": 0}
    if expected == actual:
        return found
    dtype = output["dtype"]
    theirs, ours = numbers(dtype, expected), numbers(dtype, actual)
    is_float = dtype in FLOATS
    distances = [abs(a - b) for a, b in zip(places(dtype, expected), places(dtype, actual))] if is_float else []  # noqa: B905
    worst = -1.0
    for at, (want, have) in enumerate(zip(theirs, ours)):  # noqa: B905
        if want == have:
            signs_differ = is_float and want == 0 and math.copysign(1, want) != math.copysign(1, have)
            if not (signs_differ and output["zero_signs"]):
                continue
            off = 0.0
        elif want != want and have != have:
            continue
        elif is_float and not (math.isfinite(want) and math.isfinite(have)):
            off = math.inf
            if distances[at] <= output["ulps"] and want == want and have == have:  # the largest number and infinity
                continue
        else:
            off = float(abs(want - have))
            ulps = distances[at] if is_float else 0
            found["largest_difference"] = max(found["largest_difference"], off)
            if off <= output["absolute"]:
                continue
            found["largest_ulps"] = max(found["largest_ulps"], ulps)
            if off <= output["absolute"] + output["relative"] * abs(want) or 0 < ulps <= output["ulps"]:
                continue
        found["wrong"] += 1
        if off > worst:
            worst = off
            found["worst"] = {"index": at, "expected": repr(want), "actual": repr(have)}
    return found


def npy(tensor: Facts, data: bytes) -> bytes:
    """The bytes of a .npy file; elements of bf16 are two bytes each, other narrow ones a byte."""
    name = tensor["dtype"]
    kind = NUMPY.get(name) or (f"{'<' if BYTES.get(name, 1) > 1 else '|'}{name[0]}{BYTES.get(name, 1)}")
    kind = kind if name in NUMPY or name in INTEGERS else "|u1"
    shape = "".join(f"{extent}, " for extent in tensor["shape"])
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data
