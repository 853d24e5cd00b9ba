"""Runs mutants (mutants.py) here and says what differs from ONNX Runtime, and whether rounding explains it."""

import multiprocessing
import os
import random
import re
import select
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from mutants import ATTEMPTS, INVALID, Mutant
from onnx_suite import read_outputs, reason_of, write_case
from random_graphs import RUNNER, run_onnxruntime

CASE_SECONDS = 60  # of one case; the slowest take two

# How a case is run, and how often of 100.
MODES = {"oracle": 60, "cpu": 24, "open": 5, "bf16": 4, "random": 7}


def mode_of(seed):
    return random.Random(-seed).choices(list(MODES), list(MODES.values()))[0]


class Runner:
    """The runner of nodes in a mode, started again after it has crashed or hung."""

    def __init__(self, *mode):
        self.command, self.process = [str(RUNNER), *mode], None

    def run(self, folder):
        """(status, message)"""
        if self.process is None:
            env = {**os.environ, "TW_CACHE": "off"}
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
            )
        try:
            self.process.stdin.write(f"{folder}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.stop("crashed")
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], CASE_SECONDS)[0]:
                return self.stop("hung")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return self.stop("crashed")
            line += more
        status, _, message = line.decode(errors="replace").rstrip("\n").split("\t", 2)
        return status, message

    def stop(self, status):
        self.process.kill()
        ending = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None
        return status, f"exit status {ending}"


# ----------------------------------------------------------------------------------------------------------------------
# Comparison


def epsilon(dtype):
    return 2.0**-8 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps)


# What is computed in f32 whatever the type: as `stash_type` says, by constants that are f32 in ONNX's own functions,
# or, of places between elements, by ONNX Runtime.
IN_F32 = {"LayerNormalization", "GroupNormalization", "RMSNormalization", "Gelu", "Selu", "Elu", "Celu", "HardSwish"}
IN_F32 |= {"BatchNormalization", "InstanceNormalization", "MeanVarianceNormalization", "LpNormalization", "LRN"}
WINDOWS = {"HannWindow", "HammingWindow", "BlackmanWindow"}
IN_F32 |= WINDOWS | {"Attention"}  # of whose scale the square root is taken in f32
# Places up to 70 are off by some units of 1, and so are the weights of elements beside them.
PLACES = {"DeformConv", "GridSample", "Resize", "Upsample", "RoiAlign", "AffineGrid"}
IN_F32 |= PLACES
# Sums of inputs that cancel: a result may be nothing but what they were rounded by.
CANCELS = PLACES | {"DFT", "STFT"}


# What is made of numbers about 1, which cancel: gates and their complements, and ONNX Runtime's sigmoid, which is exact
# to the last place of 1 only.
OF_ONE = {"LSTM", "GRU", "RNN", "Sigmoid", "Softsign", "Tanh", "Gelu", "Erf"} | WINDOWS


def largest_of(arrays):
    return max([np.abs(a[np.isfinite(a)]).max(initial=0) for a in arrays if a.dtype.kind == "f"], default=0)


def coarsest_epsilon(model, arrays):
    """Of the floats in the model: a result in f64 may have been computed in f16."""
    types = [i.type.tensor_type.elem_type for i in [*model.graph.input, *model.graph.output]]
    types += [t.data_type for t in model.graph.initializer]
    types += [a.i for n in model.graph.node for a in n.attribute if a.name in ("to", "dtype")]
    dtypes = [a.dtype for a in arrays] + [onnx.helper.tensor_dtype_to_np_dtype(t) for t in types if t]
    if any(n.op_type in IN_F32 for n in model.graph.node):
        dtypes.append(np.dtype(np.float32))
    return max((epsilon(d) for d in dtypes if d.kind == "f" or d.name == "bfloat16"), default=2.0**-23)


def is_close(have, want, rtol, spread, terms=1):
    """Elementwise; `spread` is allowed besides.  A number near the largest may be infinite on one side; of `terms` of a
    sum each may be subnormal, and zero."""
    dtype = want.dtype
    info = np.finfo(np.float32 if dtype.name == "bfloat16" else dtype)
    wide = np.float64
    a, b, spread = have.astype(wide), want.astype(wide), np.asarray(spread, wide)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    with np.errstate(all="ignore"):
        least = max(2.0**-125, 4 * float(info.smallest_subnormal)) * terms
        close = np.abs(a - b) <= rtol * np.abs(b) + rtol / 8 * largest + spread + least
        near = (1 - 8 * rtol) * float(info.max)
        full = (np.abs(a) >= near) & (np.abs(b) >= near) & (np.sign(a) == np.sign(b))
    return close | (a == b) | (np.isnan(a) & np.isnan(b)) | full | np.isposinf(spread)


def flushing(model):
    """The model in which subnormal numbers in f32 between nodes are zero."""
    try:
        known = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # of inference, of several kinds: only inputs are flushed then
        return model
    of_type = {v.name for v in [*known.value_info, *known.output] if v.type.tensor_type.elem_type == 1}
    tiny = numpy_helper.from_array(np.array(np.finfo(np.float32).tiny), "flush/tiny")
    zero = numpy_helper.from_array(np.zeros((), np.float32), "flush/zero")
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for k, name in enumerate(node.output):
            if name not in of_type:
                continue
            node.output[k] = f"{name}/exact"
            nodes += [
                onnx.helper.make_node("Abs", [f"{name}/exact"], [f"{name}/size"]),
                onnx.helper.make_node("Less", [f"{name}/size", tiny.name], [f"{name}/is_tiny"]),
                onnx.helper.make_node("Where", [f"{name}/is_tiny", zero.name, f"{name}/exact"], [name]),
            ]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([tiny, zero])
    return model


def spread_of(model, inputs, wants, relative, flushes):
    """How far results move, elementwise, when inputs and constants are off by `relative` or a unit of the last place,
    or, as in compiled runs, subnormal ones are zero."""
    numbers = np.random.default_rng(1)
    spreads = [np.zeros(w.shape) for w in wants]

    def moved(a, flushed):
        if np.asarray(a).dtype.kind != "f" or a.size == 0:
            return a
        if flushed:
            return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.zeros((), a.dtype), a)
        with np.errstate(all="ignore"):
            step = max(relative, epsilon(a.dtype))
            return np.asarray(a * (1 + step * numbers.choice([-1.0, 0.0, 1.0], a.shape)), a.dtype)

    for k in range(8):
        flushed = flushes and k == 0
        other = onnx.ModelProto()
        other.CopyFrom(model)
        of_nodes = [a.t for n in other.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
        for tensor in [*other.graph.initializer, *of_nodes]:
            tensor.CopyFrom(numpy_helper.from_array(moved(numpy_helper.to_array(tensor), flushed), tensor.name))
        try:
            results = run_onnxruntime(flushing(other) if flushed else other, [moved(a, flushed) for a in inputs])
        except INVALID:
            continue
        for at, (result, want) in enumerate(zip(results, wants, strict=True)):
            if result.shape != want.shape:
                spreads[at] = np.full(want.shape, np.inf)
                continue
            with np.errstate(all="ignore"):
                step = np.abs(result.astype(np.float64) - want.astype(np.float64))
            step = np.where(np.isnan(step) & ~(np.isnan(result) & np.isnan(want)) if want.dtype.kind == "f" else False,
                            np.inf, np.nan_to_num(step))  # fmt: skip
            spreads[at] = np.maximum(spreads[at], step)
    return [as_a_whole(spread, want) for spread, want in zip(spreads, wants, strict=True)]


def as_a_whole(spread, want):
    """Where one element moves by a quarter of the largest, or between kinds of what is not finite, the others may, too:
    recurrences whose states grow apart, sums over what overflows."""
    if want.dtype.kind != "f" or want.size == 0:
        return spread
    wide = want.astype(np.float64)
    largest, finite = np.abs(wide[np.isfinite(wide)]).max(initial=0), np.isfinite(spread)
    most = spread[finite].max(initial=0)
    spread = np.where(finite & (most > largest / 4), most, spread)
    return np.where(~np.isfinite(wide) & np.any(~finite & ~np.isfinite(wide)), np.inf, spread)


def differences(haves, wants, rtol, spreads=None, terms=1):
    """In words; empty: they agree.  `rtol`: of all outputs, or of each; `terms`: of the largest sum."""
    rtols = np.broadcast_to(rtol, len(wants))
    if len(haves) != len(wants):
        return f"{len(haves)} outputs, not {len(wants)}"
    for k, (have, want) in enumerate(zip(haves, wants, strict=True)):
        if have.shape != want.shape or have.dtype != want.dtype:
            return f"output {k}: {have.dtype}{list(have.shape)} is not {want.dtype}{list(want.shape)}"
        spread = spreads[k] if spreads else np.zeros(want.shape)
        if want.dtype.kind in "iub":
            with np.errstate(all="ignore"):
                apart = np.abs(have.astype(np.float64) - want.astype(np.float64))
            close = (have == want) | (apart <= spread)
        else:
            with np.errstate(over="ignore"):
                close = is_close(have, want, rtols[k], 16 * spread, terms)
        if not close.all():
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            return f"output {k}: {(~close).sum()} of {want.size} differ, first at {at}: {have[at]}, not {want[at]}"
    return ""


def overflows_between(model, inputs):
    """Whether a value between nodes is infinite in f16, where ONNX Runtime computes chains in f32, or a product is,
    which a multiply-add does not round before it adds."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    outputs = {o.name for o in model.graph.output}
    products = {node.output[0] for node in model.graph.node if node.op_type == "Mul"} - outputs
    for name in {name for node in model.graph.node for name in node.output} - outputs - {""}:
        other.graph.output.add().name = name
    try:
        values = zip(other.graph.output, run_onnxruntime(other, inputs), strict=True)
    except INVALID:
        return False
    return any((v.dtype == np.float16 or (o.name in products and v.dtype.kind == "f")) and np.isinf(v).any()
               for o, v in values)  # fmt: skip


class ReduceSum(OpRun):
    """One term after the other: where many are alike, each sum is rounded the same way."""

    op_domain = ""

    def _run(self, x, axes=None, keepdims=1, noop_with_empty_axes=0):
        axes = [] if axes is None else [int(axis) % x.ndim for axis in np.ravel(axes)]
        if not axes:
            if noop_with_empty_axes:
                return (x,)
            axes = range(x.ndim)
        rows = np.moveaxis(x, list(axes), list(range(-len(axes), 0)))
        rows = rows.reshape((*rows.shape[: x.ndim - len(axes)], -1))
        sums = np.cumsum(rows, -1, dtype=x.dtype)[..., -1] if rows.shape[-1] else np.zeros(rows.shape[:-1], x.dtype)
        return (np.expand_dims(sums, tuple(axes)) if keepdims else sums,)


def sums_overflow(model, inputs):
    """Whether the sum that a mean is made of may be infinite in f32."""
    is_mean = any(re.search("AveragePool|Mean", node.op_type) for node in model.graph.node)
    with np.errstate(over="ignore"):
        sums = [np.abs(a.astype(np.float64)).sum() for a in inputs if a.dtype.kind == "f"]
    return is_mean and max(sums, default=0) > np.finfo(np.float32).max


def either(want, third, have, rtol):
    """Of each element the third opinion where `have` is that, otherwise `want`."""
    if want.shape != have.shape or want.dtype != have.dtype or want.dtype.kind != "f":
        return want
    return np.where(is_close(have, third, rtol, 0), third, want)


def reference(model, inputs, new_ops=()):
    """What ONNX's own evaluator gives; None: it does not take the model."""
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model, new_ops=list(new_ops)).run(
                None, {i.name: a for i, a in zip(model.graph.input, inputs, strict=True)}
            )
        return [np.asarray(a) for a in found]
    except Exception:  # whatever it is, there is no third opinion
        return None


def judge(model, inputs, haves, wants, mode, is_bfloat16=False):
    """(kind, text): agree, rounding, theirs (ONNX's evaluator says what we say), or wrong."""
    relative = 2.0**-8 if mode == "bf16" or is_bfloat16 else 0.0
    unit = coarsest_epsilon(model, wants)
    problem = differences(haves, wants, 32 * unit)
    if not problem:
        return "agree", ""
    if [h.shape for h in haves] == [w.shape for w in wants]:
        # Places are computed in several steps, each of which is rounded; halfway between elements that decides.
        ops = {node.op_type for node in model.graph.node}
        inner = 2.0**-20 if ops & PLACES else 2.0**-23 if ops & IN_F32 else 0.0
        spreads = spread_of(model, inputs, wants, max(relative, inner), mode != "oracle")
        # A sum of n terms one after the other is off by n / 2 units of the last place at most.
        largest = max([a.size for a in inputs], default=1)
        rtols = [max((32 + largest / max(1, w.size) / 2) * unit, (2 + len(model.graph.node)) * relative) for w in wants]
        if any(n.op_type in OF_ONE for n in model.graph.node):
            spreads = [spread + unit for spread in spreads]
        if any(n.op_type in CANCELS for n in model.graph.node):
            spreads = [spread + 4 * unit * largest_of(inputs) for spread in spreads]
        terms = max(1, largest / min(max(1, w.size) for w in wants))
        first, problem = problem, differences(haves, wants, rtols, spreads, terms)
        if not problem:
            return "rounding", first
        finite = [
            np.where(np.isfinite(h), h, w) if h.dtype.kind == "f" else h for h, w in zip(haves, wants, strict=True)
        ]
        is_overflow = overflows_between(model, inputs) or sums_overflow(model, inputs)
        if is_overflow and not differences(finite, wants, rtols, spreads):
            return "rounding", first
    unit = max(unit, relative / 64)
    third = reference(model, inputs)
    if third is None:
        return "wrong", problem + " (no third opinion)"
    third = [t.astype(h.dtype) for t, h in zip(third, haves, strict=False)]
    if [t.shape for t in third] == [h.shape for h in haves]:  # each output, or element, as one of both has it
        sides = [(h, t if not differences([h], [t], 256 * unit) else either(w, t, h, 256 * unit))
                 for h, w, t in zip(haves, wants, third, strict=True)]  # fmt: skip
        if not any(differences([h], [side], 256 * unit) for h, side in sides):
            return "theirs", problem
    in_order = reference(model, inputs, [ReduceSum])
    if in_order is not None and not differences(haves, in_order, 256 * unit):
        return "rounding", problem
    if len(third) == len(wants) and not differences(third, wants, 256 * unit):
        return "wrong", problem + " (ONNX's evaluator agrees with ONNX Runtime)"
    return "wrong", problem + " (ONNX's evaluator says something else again)"


# ----------------------------------------------------------------------------------------------------------------------
# Cases


def describe(model):
    kinds = []
    for i in model.graph.input:
        t = i.type.tensor_type
        kinds.append(f"{onnx.TensorProto.DataType.Name(t.elem_type).lower()}{[d.dim_value for d in t.shape.dim]}")
    nodes = [
        n.op_type + "{" + ", ".join(f"{a.name}={onnx.helper.get_attribute_value(a)!s:.60}" for a in n.attribute) + "}"
        for n in model.graph.node[:8]
    ]
    return f"{' '.join(kinds)} → {' → '.join(nodes)}"


def opened(model, seed):
    """The model with half of its extents open."""
    rng = random.Random(seed)
    other = onnx.ModelProto()
    other.CopyFrom(model)
    extents = sorted({d.dim_value for i in other.graph.input for d in i.type.tensor_type.shape.dim})
    chosen = {d for d in extents if d > 0 and rng.random() < 0.5}
    for info in other.graph.input:
        for d in info.type.tensor_type.shape.dim:
            if d.dim_value in chosen:
                d.dim_param = f"n{d.dim_value}"
    for output in other.graph.output:
        output.type.tensor_type.ClearField("shape")
    return other


def mutant_of(seed, is_small):
    """The first valid mutant of a seed, bolder ones before, and how many were not valid; (None, number): none is."""
    for attempt in range(ATTEMPTS):
        try:
            return Mutant(seed, attempt, is_small), attempt
        except INVALID:
            pass
    return None, ATTEMPTS


@dataclass
class Counts:
    kinds: Counter = field(default_factory=Counter)
    invalid: int = 0  # attempts that ONNX Runtime refuses
    operators: Counter = field(default_factory=Counter)
    reasons: Counter = field(default_factory=Counter)  # why cases are refused
    examples: dict = field(default_factory=dict)  # a seed of each reason, and of each operator of `theirs`
    theirs: Counter = field(default_factory=Counter)  # operators in which ONNX Runtime alone differs
    failures: list = field(default_factory=list)

    def add(self, other):
        for name in ("kinds", "operators", "reasons", "theirs"):
            getattr(self, name).update(getattr(other, name))
        self.examples = other.examples | self.examples
        self.invalid += other.invalid
        self.failures += other.failures


class Bench:
    """Runs mutants, with one runner a mode."""

    def __init__(self, mode=None, keep=None):
        self.mode, self.keep = mode, keep
        self.runners = {}
        self.work = Path(tempfile.mkdtemp(prefix="mutants-"))

    def close(self):
        for runner in self.runners.values():
            if runner.process:
                runner.stop("")
        shutil.rmtree(self.work, ignore_errors=True)

    def run(self, seed):
        """Counts of one seed."""
        counts = Counts()
        mode = self.mode or mode_of(seed)
        mutant, counts.invalid = mutant_of(seed, mode == "oracle")
        if mutant is None:
            counts.kinds["no case"] += 1
            return counts
        op = mutant.case.op
        counts.operators[op] += 1
        model = opened(mutant.model, seed) if mode == "open" else mutant.model
        inputs, is_bfloat16 = mutant.inputs, mutant.is_bfloat16 and mode != "open"
        if is_bfloat16:
            model, inputs = mutant.in_bfloat16()
        folder = self.work / str(seed)
        write_case(folder, model, inputs)
        command = {"open": ["cpu"], "bf16": ["cpu", "bf16"], "random": ["cpu", "1"]}.get(mode, [mode])
        runner = self.runners.setdefault(mode, Runner(*command))
        status, message = runner.run(folder)
        text = f"seed {seed} {mode} {mutant.case.name}: {describe(model)}: "
        if status == "ok":
            haves = read_outputs(folder / "outputs.bin")
            if is_bfloat16:
                haves = [h.astype(np.float32) if h.dtype.name == "bfloat16" else h for h in haves]
            status, message = judge(mutant.model, mutant.inputs, haves, mutant.expected, mode, is_bfloat16)
        elif status == "error" and re.match("TW1(002|003|004|101)", message):
            status = "refused"
        if status == "refused":
            reason = f"{op}: {re.sub('[0-9]+', 'N', reason_of(message))[:150]}"
            counts.reasons[reason] += 1
            counts.examples[reason] = seed
        elif status == "theirs":
            counts.theirs[op] += 1
            counts.examples[op] = seed
        elif status not in ("agree", "rounding"):
            counts.failures.append((seed, f"{text}{status} {message[:300]}"))
        if self.keep:
            target = self.keep / str(seed)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
            for k, a in enumerate(mutant.expected):
                np.save(target / f"expected{k}.npy", a)
            print(f"{text}{status} {message}")
        shutil.rmtree(folder)
        counts.kinds[status] += 1
        return counts


def work(seeds, mode, keep, pipe):
    bench = Bench(mode, keep)
    for seed in seeds:
        pipe.send((seed, bench.run(seed)))
    bench.close()


def share(seeds, mode=None, keep=None):
    """Of these seeds, in a process of its own, since ONNX Runtime crashes over some models; such a seed is no case."""
    context = multiprocessing.get_context("fork")  # the suite is read once
    counts, left = Counts(), list(seeds)
    while left:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(left, mode, keep, theirs), daemon=True)
        process.start()
        theirs.close()
        try:
            while left and ours.poll(3 * CASE_SECONDS):
                seed, found = ours.recv()
                counts.add(found)
                left.remove(seed)
        except EOFError:
            pass
        process.kill()
        process.join()
        if left:
            counts.kinds["no case, since ONNX Runtime crashes or hangs"] += 1
            counts.failures += (
                [] if process.exitcode != 1 else [(left[0], f"seed {left[0]}: the campaign's own mistake")]
            )
            left = left[1:]
    return counts
