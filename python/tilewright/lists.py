"""Inputs and outputs that are no tensors of numbers: a sequence is a list of arrays, an optional value None or what it
is, strings are an array of them, and maps a list of dicts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .error import Error


class Type(str):
    """A type as text, such as "f32[1,3,n]", with its parts."""

    @property
    def _parts(self) -> re.Match[str]:
        match = re.fullmatch(r"(\w+)\[(.*)\]", self)
        if match is None:
            raise Error("TW1101", f"{self} is no tensor, and has no dtype and shape of its own")
        return match

    @property
    def dtype(self) -> str:
        """Of elements: "f32", "i64", "bf16", …; `numpy.dtype` takes most of them with a longer name."""
        return str(self._parts[1])

    @property
    def shape(self) -> tuple[int | str, ...]:
        """A number a dimension, or the expression of one that is open: "n", "2 * n"."""
        sizes, depth = [""], 0
        for letter in self._parts[2]:
            depth += (letter == "(") - (letter == ")")
            if letter == "," and depth == 0:  # not within min(n,8)
                sizes.append("")
            else:
                sizes[-1] += letter
        return tuple(int(size) if size.isdecimal() else size for size in sizes if size)


# (name, kind, first, count, axis, words, numbers), as runtime/plan/list_info.h has it.
ListInfo = tuple[str, str, int, int, int, list[str], list[int]]


class Values:
    """What a model takes or gives by name, and the tensors that it is made of."""

    def __init__(self, tensors: list[tuple[str, str]], lists: list[ListInfo]):
        self._tensors, self._lists = tensors, lists
        self.names: list[str] = []
        self._codes: dict[int, dict[str, int]] = {}  # by list: of its words, once one was asked for
        self._items: list[tuple[int, int]] = []  # by name: its first tensor, and its list or -1
        at, row = 0, 0
        while at < len(tensors) or row < len(lists):
            if row < len(lists) and lists[row][2] == at:
                name, _, _, count = lists[row][:4]
                self._items.append((at, row))
                at += count
                row += 1 + self._holds_list(row)
            else:
                name = tensors[at][0]
                self._items.append((at, -1))
                at += 1
            self.names.append(name)

    def _holds_list(self, row: int) -> bool:
        return row + 1 < len(self._lists) and self._lists[row + 1][0] == self._lists[row][0]

    @property
    def types(self) -> dict[str, Type]:
        """ "f32[1,3]", "sequence(f32[1,3],f32[2,3])", "packed(f32[6,3],i64[n],axis=0)", "optional(bool[],f32[3])",
        "text(i64[n])", "map(f32[n,3])"."""
        return {name: Type(self._type(*item)) for name, item in zip(self.names, self._items, strict=True)}

    def _type(self, at: int, row: int) -> str:
        if row < 0:
            return self._tensors[at][1]
        _, kind, first, count, axis = self._lists[row][:5]
        holds_list = self._holds_list(row)
        parts = [kind for _, kind in self._tensors[first : first + (min(count, 1) if holds_list else count)]]
        parts += [self._type(first + 1, row + 1)] if holds_list else []
        parts += [f"axis={axis}"] if kind in ("packed", "stacked") else []
        return f"{kind}({','.join(parts)})"

    def of(self, arrays: list[Any]) -> list[Any]:
        """The values in order, given all tensors in order; parts of one tensor are views of it."""
        if not self._lists:
            return arrays
        return [self._value(arrays, *item) for item in self._items]

    def _value(self, arrays: list[np.ndarray], at: int, row: int) -> Any:
        if row < 0:
            return arrays[at]
        _, kind, first, count, axis, words, numbers = self._lists[row]
        if kind == "text":
            return np.array(words, dtype=object)[arrays[first]]
        if kind == "map":
            return [dict(zip(words or numbers, row, strict=True)) for row in arrays[first].tolist()]
        if kind == "sequence":
            return arrays[first : first + count]
        if kind == "stacked":
            return list(np.moveaxis(arrays[first], axis, 0))
        if kind == "ragged":
            shapes = [tuple(row[row >= 0]) for row in arrays[first + 1]]
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
            return [part.reshape(s) for part, s in zip(np.split(arrays[first], ends[:-1]), shapes, strict=False)]
        if kind == "packed":
            sizes = arrays[first + 1]
            return np.split(arrays[first], np.cumsum(sizes)[:-1], axis) if len(sizes) else []
        if count == 0 or not arrays[first]:
            return None
        return self._value(arrays, first + 1, row + 1 if self._holds_list(row) else -1)

    def tensors(self, values: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Tensors by name, given `what` by name, in which sequences are lists of arrays."""
        if not self._lists:
            return values
        tensors: dict[str, Any] = {}
        for name, value in values.items():
            row = self._items[self.names.index(name)][1] if name in self.names else -1
            if row < 0:
                tensors[name] = value
                continue
            _, kind, first, count = self._lists[row][:4]
            if kind in ("text", "map"):
                tensors[self._tensors[first][0]] = self._coded(name, row, value) if what == "input" else value
            elif kind == "optional" and count == 0:
                if value is not None:
                    raise Error("TW1101", f"{what}[{name!r}] is absent in this model\nhelp: give None, or nothing")
            elif kind != "sequence":
                raise Error("TW1101", f"{what}[{name!r}]: only a run knows how many arrays it is\nhelp: leave it out")
            elif not isinstance(value, (list, tuple)) or len(value) != count:
                raise Error("TW1101", f"{what}[{name!r}] is no list of {count} arrays\nhelp: one for each tensor of it")
            else:
                tensors |= {self._tensors[first + k][0]: part for k, part in enumerate(value)}
        return tensors

    def _coded(self, name: str, row: int, value: Any) -> np.ndarray:
        """Strings by their place among the words; -1: none of them.  Such places themselves are taken, too."""
        array = np.asarray(value)
        if array.dtype == np.int64:
            return array
        if array.dtype.kind not in "OUS" and array.size > 0:
            raise Error("TW1101", f"input[{name!r}] is no array of strings, but of {array.dtype}")
        codes = self._codes.setdefault(row, {word: code for code, word in enumerate(self._lists[row][5])})
        words = [word.decode() if isinstance(word, bytes) else str(word) for word in array.ravel()]
        return np.array([codes.get(word, -1) for word in words], np.int64).reshape(array.shape)
