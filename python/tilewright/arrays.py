"""Arrays that callers give: on the host as numpy has them, and in the memory of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from .options import checked_gpu


def as_array(value: Any) -> np.ndarray:
    """numpy's view of an array, of anything that speaks DLPack, or a copy of a nested list."""
    if type(value) is np.ndarray and value.flags.c_contiguous:
        return value
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        try:
            value = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):  # a dtype or device that numpy does not take this way
            pass
    return np.ascontiguousarray(value).reshape(np.shape(value))


Array = np.ndarray | _core.DeviceArray


def as_given(value: Any, name: str, stream: Any) -> Array:
    """`as_array` of what is on the host, and a view of what is in a GPU's memory."""
    if not _core.is_on_gpu(value):
        return as_array(value)
    view: _core.DeviceArray = _core.view_on_gpu(value, f"input {name!r}", stream, False)
    return view


def to_device(array: Any, gpu: int = 0) -> _core.DeviceArray:
    """A copy of an array of numpy, or of what `np.asarray` takes, in the memory of a GPU, by its ordinal, where
    executables on that one use it.

    Raises Error: TW1501, there is no such GPU.
    """
    return _core.to_device(as_array(array), checked_gpu(gpu))
