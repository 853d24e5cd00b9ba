"""The picture that the demo reads: a few lines of text, one of them upside down."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 640, 320
# (text, size, left, top, upside down)
LINES = [
    ("A model goes in, machine code comes out", 29, 28, 22, False),
    ("Order 4711: 3 x espresso, 12.50 EUR", 32, 36, 92, False),
    ("This line stands upside down", 34, 60, 166, True),
    ("No kernel was written by hand", 38, 40, 246, False),
]


def draw() -> Image.Image:
    """An RGB picture with a soft gradient as background, the same on every machine."""
    down, across = np.mgrid[0:HEIGHT, 0:WIDTH]
    shade = np.stack([236 - across // 24, 240 - down // 20, 228 + across // 40], axis=-1)
    picture = Image.fromarray(shade.astype(np.uint8))
    for text, size, left, top, upside_down in LINES:
        font = ImageFont.load_default(size=size)
        _, _, width, height = font.getbbox(text)
        line = Image.new("L", (int(width) + 4, int(height) + 6), 0)
        ImageDraw.Draw(line).text((2, 2), text, fill=255, font=font)
        if upside_down:
            line = line.transpose(Image.Transpose.ROTATE_180)
        picture.paste((32, 38, 64), (left, top), line)
    return picture


def save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
