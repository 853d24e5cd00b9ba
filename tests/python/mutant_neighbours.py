"""Cheap nodes after a mutant's own (mutants.py): moves, casts, broadcasts.  Each takes a value and says what becomes of
its name, shape and type."""

import numpy as np
from onnx import helper

from mutant_seeds import FLOATS, fill


def broadcast(m, shape):
    return [d if m.rng.random() < 0.6 else 1 for d in shape[m.rng.randint(0, len(shape)) :]]


def transpose(m, x, shape, dtype):
    if len(shape) < 2:
        return unsqueeze(m, x, shape, dtype)
    perm = m.rng.sample(range(len(shape)), len(shape))
    return m.emit("Transpose", [x], perm=perm), [shape[p] for p in perm], dtype


def reshape(m, x, shape, dtype):
    rng = m.rng
    new = list(shape)
    if len(new) > 1 and rng.random() < 0.6:
        k = rng.randrange(len(new) - 1)
        new[k : k + 2] = [new[k] * new[k + 1]]
    elif new:
        k = rng.randrange(len(new))
        divisor = rng.choice([d for d in range(1, new[k] + 1) if new[k] % d == 0])
        new[k : k + 1] = [divisor, new[k] // divisor]
    return m.emit("Reshape", [x, m.constant(np.array(new, np.int64))]), new, dtype


def unsqueeze(m, x, shape, dtype):
    ones = [k for k, d in enumerate(shape) if d == 1]
    if ones and m.rng.random() < 0.5:
        k = m.rng.choice(ones)
        return m.emit("Squeeze", [x, m.constant(np.array([k], np.int64))]), shape[:k] + shape[k + 1 :], dtype
    k = m.rng.randint(0, len(shape))
    return m.emit("Unsqueeze", [x, m.constant(np.array([k], np.int64))]), shape[:k] + [1] + shape[k:], dtype


def part(m, x, shape, dtype):
    if not shape:
        return unsqueeze(m, x, shape, dtype)
    k, step = m.rng.randrange(len(shape)), m.rng.choice([1, 1, 2, -1])
    first = m.rng.randrange(shape[k])
    last = m.rng.randint(first + 1, shape[k])
    size = len(range(first, last, abs(step)))
    bounds = (
        [first, last, k, step] if step > 0 else [last - 1, first - 1 - shape[k] if first == 0 else first - 1, k, -1]
    )
    bounds = [m.constant(np.array([b], np.int64)) for b in bounds]
    return m.emit("Slice", [x, *bounds]), [*shape[:k], size, *shape[k + 1 :]], dtype


def twice(m, x, shape, dtype):
    if not shape:
        return unsqueeze(m, x, shape, dtype)
    k = m.rng.randrange(len(shape))
    return m.emit("Concat", [x, x], axis=k), [*shape[:k], 2 * shape[k], *shape[k + 1 :]], dtype


def cast(m, x, shape, dtype):
    """Between floats and to them: numbers out of an integer's range are open."""
    to = np.dtype(m.rng.choice(FLOATS))
    return m.emit("Cast", [x], to=helper.np_dtype_to_tensor_dtype(to)), shape, to


def binary(m, x, shape, dtype):
    if dtype.kind == "b":
        ops, profile = ["And", "Or", "Xor"], "normal"
    elif dtype.kind in "iu":
        ops, profile = (["Add", "Sub", "Mul"] if dtype.itemsize >= 4 else ["BitwiseXor", "BitwiseAnd"]), "normal"
        if m.opset < 18 and dtype.itemsize < 4:
            return transpose(m, x, shape, dtype)
    else:
        ops, profile = ["Add", "Sub", "Mul", "Div"], m.rng.choice(["normal", "whole", "positive"])
    other = m.constant(fill(m.rng, dtype, broadcast(m, shape), profile))
    op = m.rng.choice(ops)
    if op == "Div":
        return m.emit(op, [x, m.constant(fill(m.rng, dtype, broadcast(m, shape), "positive"))]), shape, dtype
    return m.emit(op, [x, other] if m.rng.random() < 0.7 else [other, x]), shape, dtype


def own_product(m, x, shape, dtype):
    if dtype.kind != "f":
        return twice(m, x, shape, dtype)
    return m.emit("Mul", [x, m.emit("Sigmoid", [x])]), shape, dtype


def unary(m, x, shape, dtype):
    if dtype.kind == "b":
        return m.emit("Not", [x]), shape, dtype
    if dtype.kind in "iu":
        return (m.emit("Abs", [x]) if dtype.kind == "i" else m.emit("Identity", [x])), shape, dtype
    return m.emit(m.rng.choice(["Neg", "Abs", "Sigmoid", "Tanh", "Softsign"]), [x]), shape, dtype


def expand(m, x, shape, dtype):
    new = [d if d > 1 else m.rng.randint(1, 4) for d in shape]
    new = [m.rng.randint(1, 3)] * m.rng.randint(0, 1) + new
    return m.emit("Expand", [x, m.constant(np.array(new, np.int64))]), new, dtype


def gather(m, x, shape, dtype):
    if not shape:
        return unsqueeze(m, x, shape, dtype)
    k = m.rng.randrange(len(shape))
    indices = [m.rng.randrange(-shape[k], shape[k]) for _ in range(m.rng.randint(1, 5))]
    name = m.emit("Gather", [x, m.constant(np.array(indices, np.int64))], axis=k)
    return name, [*shape[:k], len(indices), *shape[k + 1 :]], dtype


def total(m, x, shape, dtype):
    if not shape or dtype.kind != "f":
        return transpose(m, x, shape, dtype)
    k = m.rng.randrange(len(shape))
    name = m.emit("ReduceSum", [x, m.constant(np.array([k], np.int64))], keepdims=1)
    return name, [*shape[:k], 1, *shape[k + 1 :]], dtype


FOLLOWERS = [transpose, transpose, reshape, reshape, unsqueeze, part, twice, cast, binary, binary, own_product, unary]
FOLLOWERS += [expand, gather, total]
