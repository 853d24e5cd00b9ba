"""ImageDecoder of ONNX: files of images become arrays, by the package Pillow, which knows their formats."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from .error import Error
from .operators import ArrayType, Operator, Operators

MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def opened(data: np.ndarray) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data.tobytes()))


def types(data: ArrayType, pixel_format: str = "RGB") -> ArrayType:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise Error("TW1003", "the package pillow is not installed\nhelp: pip install 'tilewright[images]'") from None
    if pixel_format not in MODES:
        raise ValueError(f"pixel_format={pixel_format!r}")
    if data.dtype != "u8" or len(data.shape) != 1:
        raise ValueError("the file is a list of u8")
    return ArrayType("u8", (None, None, 1 if pixel_format == "Grayscale" else 3))


def sizes(data: np.ndarray, pixel_format: str = "RGB") -> tuple[int, int]:
    """Rows and columns."""
    width, height = opened(data).size
    return height, width


def decoded(data: np.ndarray, pixel_format: str = "RGB") -> np.ndarray:
    pixels = np.asarray(opened(data).convert(MODES[pixel_format]))
    if pixel_format == "BGR":
        pixels = pixels[:, :, ::-1]
    return pixels.reshape(*pixels.shape[:2], -1)


IMAGE_DECODER = Operator("", "ImageDecoder", types=types, sizes=sizes, function=decoded)
BUILT_IN = (IMAGE_DECODER,)


def with_built_in(operators: Operators) -> tuple[Operator, ...]:
    """Those of a caller, and of ours those that he does not replace."""
    own = tuple(operators or ())
    names = {each.full_name for each in own if isinstance(each, Operator)}
    return (*own, *(each for each in BUILT_IN if each.full_name not in names))
