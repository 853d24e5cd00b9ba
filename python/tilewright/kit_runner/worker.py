"""Runs cases by the C library, in a process that one of them may end."""

from __future__ import annotations

import ctypes
import gzip
import json
import math
import os
import random
import statistics
import struct
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from .comparing import BYTES, FLOATS, INTEGERS, Facts, byte_size, compare, npy, numbers
from .driver import Problem, ceilings, device_facts, hold_context

LIBRARY = "libtilewright_runtime.so"
MOST_KEPT_OF_ONE = 1 << 20  # bytes of an output that differs
MEASURED_SECONDS = 0.25  # of a case that is timed
LAUNCHES_SECONDS = 200e-6  # that launches of a kernel which are timed together take at least


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    ]


class KernelTime(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kernel", ctypes.c_char_p),
        ("seconds", ctypes.c_double),
        ("operations", ctypes.c_double),
        ("bytes", ctypes.c_double),
    ]


class Memory:
    """Bytes at an address that kernels take without a copy."""

    def __init__(self, size: int):
        self.size = size
        self._block = (ctypes.c_char * (size + 64))()
        self.address = (ctypes.addressof(self._block) + 63) & ~63

    def fill(self, data: bytes) -> None:
        """With these bytes, again and again."""
        if data:
            ctypes.memmove(self.address, data * (self.size // len(data) + 1), self.size)

    def read(self, size: int) -> bytes:
        return ctypes.string_at(self.address, size)


def pointers(values: list[Any], kind: Any = ctypes.c_void_p) -> Any:
    return (kind * max(1, len(values)))(*values)


class Executable:
    """An artifact as the C library loads it, with the shapes that a case runs it at."""

    def __init__(self, library: Any, artifact: bytes, case: Facts):
        self._library, self._case, self._handle = library, case, ctypes.c_void_p()
        self.seconds = 0.0  # of the last run alone
        size = ctypes.c_size_t(len(artifact))
        self._check(library.tw_load_memory(artifact, size, ctypes.byref(self._handle)))
        self.inputs = [Memory(byte_size(tensor)) for tensor in case["inputs"]]
        # What only a run knows the size of has room for twice what is expected.
        self.outputs = [Memory(2 * byte_size(tensor) + 64) for tensor in case["outputs"]]
        self._shapes = [pointers(tensor["shape"], ctypes.c_int64) for tensor in case["inputs"]]

    def _check(self, status: int) -> None:
        if status != 0:
            raise Problem(self._library.tw_last_error().decode(errors="replace"))

    def _arguments(self) -> tuple[Any, Any]:
        shapes = [ctypes.cast(shape, ctypes.c_void_p).value for shape in self._shapes]
        return pointers([memory.address for memory in self.inputs]), pointers(shapes)

    def run(self) -> list[tuple[list[int], bytes]]:
        """Shapes and bytes of all outputs, of the first run after seed 0."""
        inputs, shapes = self._arguments()
        sizes, known = [], (ctypes.c_int64 * 16)()
        for index, (tensor, memory) in enumerate(zip(self._case["outputs"], self.outputs)):  # noqa: B905
            memory.fill(b"\xa5")
            self._check(self._library.tw_output_shape(self._handle, shapes, index, known))
            is_open = -1 in known[: len(tensor["shape"])]
            sizes.append(memory.size if is_open else math.prod(known[: len(tensor["shape"])]) * self._width(tensor))
        self._check(self._library.tw_set_seed(self._handle, 0))
        outputs = pointers([memory.address for memory in self.outputs])
        places = pointers(sizes, ctypes.c_size_t)
        start = time.perf_counter()
        status = self._library.tw_run_shaped(self._handle, inputs, shapes, outputs, places)
        self.seconds = time.perf_counter() - start
        self._check(status)
        results = []
        for index, (tensor, memory) in enumerate(zip(self._case["outputs"], self.outputs)):  # noqa: B905
            self._check(self._library.tw_result_shape(index, known))
            shape = list(known[: len(tensor["shape"])])
            results.append((shape, memory.read(min(memory.size, math.prod(shape) * self._width(tensor)))))
        return results

    @staticmethod
    def _width(tensor: Facts) -> int:
        return BYTES.get(tensor["dtype"], 1)

    def time_kernels(self, repetitions: int) -> list[Facts]:
        inputs, shapes = self._arguments()
        result, count = ctypes.POINTER(KernelTime)(), ctypes.c_int32()
        self._check(
            self._library.tw_time_kernels(
                self._handle, inputs, shapes, repetitions, ctypes.byref(result), ctypes.byref(count)
            )
        )
        return [
            {
                "name": step.name.decode(),
                "kernel": step.kernel.decode(),
                "seconds": step.seconds,
                "operations": step.operations,
                "bytes": step.bytes,
            }
            for step in result[: count.value]
            if step.kernel
        ]

    def close(self) -> None:
        self._library.tw_free(self._handle)


def load_library(folder: Path) -> Any:
    library = ctypes.CDLL(str(folder / LIBRARY))
    library.tw_last_error.restype = ctypes.c_char_p
    library.tw_set_seed.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.tw_free.argtypes = [ctypes.c_void_p]
    return library


def made_up(dtype: str) -> bytes:
    """Numbers from -1 to 1, or small whole ones, that inputs of timed cases repeat."""
    draw = random.Random(0)
    if dtype not in FLOATS:
        return array(INTEGERS.get(dtype, "B"), [draw.randrange(2) for _ in range(1 << 16)]).tobytes()
    values = [draw.uniform(-1, 1) for _ in range(1 << 16)]
    if dtype == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "bf16":
        return array("H", [bits >> 16 for bits in array("I", array("f", values).tobytes())]).tobytes()
    return array(FLOATS[dtype][0], values).tobytes()


def read_tensors(path: Path, tensors: list[Facts]) -> list[bytes]:
    data, result, at = path.read_bytes(), [], 0
    for tensor in tensors:
        result.append(data[at : at + byte_size(tensor)])
        at += byte_size(tensor)
    return result


def read_from(case: Facts, inputs: list[bytes], index: int) -> list[str]:
    """What an element was computed of, where inputs are as long as outputs and have one each."""
    sizes = {math.prod(tensor["shape"]) for tensor in (*case["inputs"], *case["outputs"])}
    if len(sizes) != 1:
        return []
    return [repr(numbers(tensor["dtype"], data)[index]) for tensor, data in zip(case["inputs"], inputs)]  # noqa: B905


def check_outputs(
    case: Facts, folder: Path, inputs: list[bytes], results: list[tuple[list[int], bytes]], kept: Path | None
) -> Facts:
    """Compares with what is expected; `kept` is the folder for outputs that differ."""
    found: Facts = {"status": "passed", "outputs": []}
    expected = read_tensors(folder / "expected.bin", case["outputs"])
    for output, want, (shape, have) in zip(case["outputs"], expected, results):  # noqa: B905
        if shape != output["shape"]:
            row: Facts = {"wrong": 1, "problem": f"its shape is {shape}, not {output['shape']}"}
        else:
            row = compare(want, have, output)
        found["outputs"].append({"name": output["name"], "dtype": output["dtype"], **row})
        if row["wrong"]:
            found["status"] = "wrong"
            if "worst" in row:
                row["worst"]["of"] = read_from(case, inputs, row["worst"]["index"])
            if kept and len(have) <= MOST_KEPT_OF_ONE:
                kept.mkdir(parents=True, exist_ok=True)
                name = "".join("_" if letter in "/:" else letter for letter in output["name"]) + ".npy"
                (kept / name).write_bytes(npy({**output, "shape": shape}, have))
    return found


def run_case(library: Any, folder: Path, request: Facts) -> Facts:
    case: Facts = json.loads((folder / "case.json").read_text())
    executable = Executable(library, gzip.decompress((folder / "model.twa.gz").read_bytes()), case)
    found: Facts = {"status": "passed"}
    if case["made_up"]:
        for memory, tensor in zip(executable.inputs, case["inputs"]):  # noqa: B905
            memory.fill(made_up(tensor["dtype"]))
    else:
        inputs = read_tensors(folder / "inputs.bin", case["inputs"])
        for memory, data in zip(executable.inputs, inputs):  # noqa: B905
            memory.fill(data)
        results = executable.run()
        found = check_outputs(case, folder, inputs, results, request["kept"] and Path(request["kept"]))
        if found["status"] == "passed" and executable.run() != results:
            found["status"], found["message"] = "unstable", "a second run on the same inputs gives other numbers"
    if case["is_timed"]:
        once = sum(max(kernel["seconds"], LAUNCHES_SECONDS) for kernel in executable.time_kernels(3)) or 1e-6
        often = max(5, min(200, int(MEASURED_SECONDS / once)))
        found["kernels"] = executable.time_kernels(often)
        walls = []
        for _ in range(0 if case["made_up"] else min(often, 20)):
            executable.run()
            walls.append(executable.seconds)
        if walls:
            found["run_seconds"] = statistics.median(walls)
    executable.close()
    return found


def work(folder: Path) -> int:
    """Answers requests, a line of JSON each, until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no reply
    library: Any = None
    for line in sys.stdin:
        request: Facts = json.loads(line)
        must_end = False
        try:
            if request["job"] == "case":
                if not library:
                    library = load_library(folder)
                    hold_context()
                reply = run_case(library, folder / "cases" / request["name"], request)
            else:
                reply = {"facts": device_facts, "ceilings": ceilings}[request["job"]]()
        except Problem as problem:
            # What a kernel has broken stays so in this process.
            reply, must_end = {"status": "failed", "message": str(problem)}, True
        print(json.dumps(reply), file=replies, flush=True)
        if must_end:
            return 1
    return 0
