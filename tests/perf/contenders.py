"""What is measured side by side: Tilewright, ONNX Runtime and OpenVINO, each with a model, inputs and some threads.

A contender's `start` compiles; its `run` computes once, from arrays of the caller into arrays that are allocated once,
so that no figure counts page faults or copies at the edge.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino

import tilewright as tw


@dataclass(frozen=True)
class Contender:
    run: Callable[[], object]
    outputs: Callable[[], list[np.ndarray]]  # of the last run, in the graph's order


def aligned(array: np.ndarray, boundary: int = 64) -> np.ndarray:
    """A copy that starts where every contender takes it in place."""
    bytes_ = np.empty(array.nbytes + boundary, np.uint8)
    start = -bytes_.ctypes.data % boundary
    copy = bytes_[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def inputs_of(model: onnx.ModelProto, shapes: dict) -> dict[str, np.ndarray]:
    """Seeded inputs: normal floats, small integers, all-one masks."""
    constants, rng, feed = {t.name for t in model.graph.initializer}, np.random.default_rng(0), {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = shapes.get(value.name) or [max(d.dim_value, 1) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if "mask" in value.name:
            made = np.ones(shape, dtype)
        elif dtype.kind == "f":
            made = rng.standard_normal(shape, np.float32).astype(dtype)
        else:
            made = rng.integers(0, 100, shape).astype(dtype)
        feed[value.name] = aligned(made)
    return feed


# Each compiles the model for `threads` threads, and unless `is_open` for the shapes of `feed`.


def tilewright(model: Path | bytes, feed: dict, threads: int, is_open: bool = False) -> Contender:
    shapes = {} if is_open else {name: x.shape for name, x in feed.items()}
    executable = tw.compile(tw.load(model, shapes=shapes), threads=threads)
    results = {name: aligned(array) for name, array in executable.run(feed).items()}
    return Contender(lambda: executable.run(feed, out=results), lambda: list(results.values()))


def onnx_runtime(model: Path | bytes, feed: dict, threads: int, is_open: bool = False) -> Contender:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, x in feed.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
    for output, array in zip(session.get_outputs(), session.run(None, feed), strict=True):
        binding.bind_ortvalue_output(output.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    return Contender(lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu)


def open_vino(model: Path | bytes, feed: dict, threads: int, is_open: bool = False) -> Contender:
    core = openvino.Core()
    network = core.read_model(model)
    if not is_open:
        network.reshape({name: list(x.shape) for name, x in feed.items()})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(network, "CPU", settings).create_infer_request()
    for name, x in feed.items():
        request.set_tensor(name, openvino.Tensor(x, shared_memory=True))
    return Contender(
        lambda: request.infer(share_outputs=True),
        lambda: [np.array(request.get_output_tensor(i).data) for i in range(len(network.outputs))],
    )


CONTENDERS = {"Tilewright": tilewright, "ONNX Runtime": onnx_runtime, "OpenVINO": open_vino}


def wait_for_idle_threads(step: float = 0.01, longest: float = 1.0) -> None:
    """Until the last contender's threads have stopped to spin: ONNX Runtime's do for 60 ms after a run."""
    end = time.perf_counter() + longest  # some may be told to spin for ever
    busy = step
    while busy > step / 10 and time.perf_counter() < end:
        start = time.process_time()
        time.sleep(step)
        busy = time.process_time() - start


def mean_latency(run: Callable[[], object], seconds: float) -> float:
    count, start = 0, time.perf_counter()
    while count < 2 or time.perf_counter() - start < seconds:
        run()
        count += 1
    return (time.perf_counter() - start) / count


def interleaved_medians(
    runs: dict[str, Callable[[], object]],
    rounds: int,
    seconds: float,
    rate: Callable[[float], float] | None = None,
) -> tuple[dict[str, float], float]:
    """Median seconds a run, and the median of `rate(seconds)`, what the machine can do meanwhile.

    Each round runs every contender for the same time, so a slow spell falls on all.
    """
    samples, rates = {name: [] for name in runs}, []
    for _ in range(rounds):
        for name, run in runs.items():
            wait_for_idle_threads()
            run()
            samples[name].append(mean_latency(run, seconds))
        rates.append(rate(seconds) if rate else 0.0)
    return {name: statistics.median(values) for name, values in samples.items()}, statistics.median(rates)


def largest_difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Over all outputs, relative to each one's largest magnitude."""
    difference = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if b.size:
            difference = max(difference, float(np.abs(a - b).max()) / (float(np.abs(b).max()) or 1.0))
    return difference
