"""Inputs that are made up, from the types of a model's inputs."""

from __future__ import annotations

import numpy as np

from . import _core


def dtype_and_shape(kind: str, sizes: dict[str, int] | None = None) -> tuple[np.dtype, tuple[int, ...]]:
    """Of "f32[1,3,224,224]", or "f32[batch,3,224,224]" at these sizes of the open dimensions."""
    name, _, extents = kind.partition("[")
    extents = extents.rstrip("]").replace(" ", "")
    known = sizes or {}
    return _core.numpy_dtype(name), tuple(
        known[extent] if extent in known else int(extent) for extent in extents.split(",") if extent
    )


def smallest_sizes(dimensions: dict[str, tuple[int, int | None]]) -> dict[str, int]:
    """Of open dimensions with these bounds: the least sizes with which there is something to compute."""
    return {name: max(low, 1) for name, (low, _) in dimensions.items()}


def made_up_inputs(inputs: dict[str, str], seed: int, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Seeded inputs: normal floats, small integers, all-true masks.

    Integers of 32 and 64 bits are mostly indices, into axes that nobody names: 0 and 1 are right for nearly all.
    """
    return made_up_arrays({name: dtype_and_shape(kind, sizes) for name, kind in inputs.items()}, seed)


def made_up_arrays(types: dict[str, tuple[np.dtype, tuple[int, ...]]], seed: int) -> dict[str, np.ndarray]:
    rng, feed = np.random.default_rng(seed), {}
    for name, (dtype, shape) in types.items():
        if dtype.kind == "b" or "mask" in name:
            feed[name] = np.ones(shape, dtype)
        elif dtype.kind in "iu":
            feed[name] = rng.integers(0, 2 if dtype.itemsize >= 4 else 100, shape).astype(dtype)
        else:
            feed[name] = rng.standard_normal(shape).astype(dtype)
    return feed
