"""Text reading around the three PP-OCRv4 networks: what goes into them and what their outputs mean.

    detection       picture  → a map of how likely each pixel is text       (differentiable binarisation)
    classification  line     → is it upside down?
    recognition     line     → for each step from left to right, a character or "none"       (CTC)

Arrays are NCHW float32 in the BGR order that the networks were trained with.
"""

from dataclasses import dataclass

import numpy as np
from PIL import Image

CLASSIFICATION_SHAPE = (1, 3, 48, 192)
RECOGNITION_HEIGHT = 48


def to_input(picture: Image.Image, mean, deviation) -> np.ndarray:
    pixels = np.asarray(picture, np.float32)[:, :, ::-1] / 255
    pixels = (pixels - np.float32(mean)) / np.float32(deviation)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def detection_input(picture: Image.Image) -> np.ndarray:
    """The whole picture; its sides must be multiples of 32."""
    return to_input(picture, mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225))


def line_input(line: Image.Image, width: int) -> np.ndarray:
    """A line scaled to the height of the networks and padded with grey (zeros) to `width`."""
    scaled = min(width, max(1, round(line.width * RECOGNITION_HEIGHT / line.height)))
    x = np.zeros((1, 3, RECOGNITION_HEIGHT, width), np.float32)
    x[..., :scaled] = to_input(line.resize((scaled, RECOGNITION_HEIGHT), Image.Resampling.BILINEAR), 0.5, 0.5)
    return x


def recognition_width(lines: list[Image.Image]) -> int:
    """One width for all lines: that of the longest one, rounded up to a multiple of 32."""
    longest = max((line.width / line.height for line in lines), default=1)
    return int(np.ceil(longest * RECOGNITION_HEIGHT / 32) * 32)


@dataclass
class Box:
    left: int
    top: int
    right: int
    bottom: int
    score: float


def components(mask: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Bounding boxes (left, top, right, bottom) of the 8-connected regions of a mask, by joining row runs."""
    boxes: list[list[int]] = []
    parents: list[int] = []

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    above: list[tuple[int, int, int]] = []
    for y, row in enumerate(mask.astype(np.int8)):
        edges = np.flatnonzero(np.diff(row, prepend=0, append=0))
        here = []
        for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            label = len(parents)
            parents.append(label)
            boxes.append([start, y, stop, y + 1])
            for other_start, other_stop, other in above:
                if other_start <= stop and start <= other_stop:
                    a, b = sorted((root(label), root(other)))
                    if a != b:
                        parents[b] = a
                        one, two = boxes[a], boxes[b]
                        boxes[a] = [min(one[0], two[0]), min(one[1], two[1]), max(one[2], two[2]), max(one[3], two[3])]
            here.append((start, stop, label))
        above = here
    return [tuple(boxes[i]) for i in range(len(parents)) if parents[i] == i]


def find_lines(probability: np.ndarray, threshold=0.3, least_score=0.5, growth=1.6) -> list[Box]:
    """Lines of text in the detection output [1,1,H,W], from top to bottom.

    The network marks a shrunken core of each line; a box grows by area · growth / perimeter on each side.
    """
    score_map = probability[0, 0]
    height, width = score_map.shape
    found = []
    for left, top, right, bottom in components(score_map > threshold):
        score = float(score_map[top:bottom, left:right].mean())
        w, h = right - left, bottom - top
        if min(w, h) < 5 or score < least_score:
            continue
        grow = round(w * h * growth / (2 * (w + h)))
        found.append(
            Box(max(0, left - grow), max(0, top - grow), min(width, right + grow), min(height, bottom + grow), score)
        )
    return sorted(found, key=lambda box: box.top)


def is_upside_down(probabilities: np.ndarray) -> bool:
    """From the classification output [1,2]: (upright, turned by 180°)."""
    return bool(probabilities[0, 1] > 0.9)


def decode(probabilities: np.ndarray, characters: list[str]) -> tuple[str, float]:
    """Text and mean confidence of the recognition output [1,steps,classes]; class 0 means "none"."""
    classes = probabilities[0].argmax(axis=1)
    first_of_run = np.concatenate([[True], classes[1:] != classes[:-1]])
    kept = np.flatnonzero(first_of_run & (classes != 0))
    text = "".join(characters[classes[i] - 1] for i in kept)
    return text, float(probabilities[0, kept, classes[kept]].mean()) if len(kept) else 0.0


def alphabet(metadata: str) -> list[str]:
    """The characters of classes 1, 2, … as the recognition network's metadata lists them, then the space."""
    return [*metadata.split("\n"), " "]
