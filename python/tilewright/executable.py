"""Compiled models: running, saving, loading and profiling them."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from . import _core
from .arrays import Array, as_array, as_given
from .dimension import InputShape, SizeProfile, described_profiles
from .error import Error
from .fallback import operators_of_artifact
from .images import with_built_in
from .lists import Type, Values
from .machine import add_nvrtc_hints
from .model import Model, Source, load
from .notebooks import signature, table
from .operators import Operators, functions_of, give_functions, schedules_of
from .options import (
    Threads,
    checked_database,
    checked_gpu,
    checked_in_place,
    checked_names,
    checked_path,
    checked_precision,
    checked_target,
    checked_team,
    constraints_of,
    gpu_of,
)
from .profile import Kernel, Profile, Span
from .schedule import Schedule, name_of_template

logger = logging.getLogger(__name__)


# Takes profiles of exact sizes; gives the executable that has them, too, and what its compilation did.
Recompile = Callable[[list[dict[str, int]]], tuple[_core.Executable, dict[str, Any]]]
MOST_SPECIAL_SIZES = 32  # that `specialise` compiles for


@dataclass(frozen=True)
class Compilation:
    """What a graph is compiled with."""

    target: str = "cpu"
    threads: int = 0
    precision: str = "f32"
    winograd: bool = True
    strassen: bool = True
    in_place: dict[str, str] = field(default_factory=dict)
    database: str = ""
    template: Callable[[Schedule], bool] | None = None
    operator_schedules: dict[str, Callable[[Schedule], bool]] = field(default_factory=dict)  # by what kernels name
    profiles: list[dict[str, tuple[int, int, int]]] = field(default_factory=list)
    keep_f32: frozenset[str] = frozenset()
    unfused: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    functions: dict[str, tuple[Callable[..., Any], bool]] = field(default_factory=dict)  # of the host, by name

    def run(self, graph: _core.Graph, exact: Sequence[dict[str, int]] = ()) -> tuple[_core.Executable, dict[str, Any]]:
        """`exact`: sizes that have kernels of their own, too."""
        add_nvrtc_hints()
        core, report = _core.compile(
            graph,
            self.target,
            self.threads,
            self.precision,
            constraints_of(self.winograd, self.strassen),
            self.in_place,
            described_profiles(exact) + self.profiles,
            self.database,
            self.template,
            name_of_template(self.template),
            self.operator_schedules,
            self.keep_f32,
            self.unfused,
            self.skip,
            self.functions,
        )
        if gpu := gpu_of(self.target):
            core.gpu = gpu
        return core, report


class Executable:
    """A compiled model.  Threads may share one; their runs queue up on its team of workers."""

    # The model that it was compiled from, while that is there, and how; None of an artifact.
    _made_from: tuple[weakref.ref[Model], Compilation] | None = None

    @property
    def _compilation(self) -> Compilation:
        """Of one that was compiled in this process."""
        assert self._made_from is not None
        return self._made_from[1]

    def __init__(
        self, core: _core.Executable, report: dict[str, Any] | None = None, recompile: Recompile | None = None
    ):
        self._core, self._report = core, report
        self._recompile, self._lock = recompile, threading.Lock()
        # By the inputs' shapes: sizes that were compiled for.
        self._special: dict[tuple[tuple[int, ...], ...], dict[str, int]] = {}
        self._inputs, self._outputs = list(core.inputs), list(core.outputs)  # (name, type) in order
        self._input_names = [name for name, _ in self._inputs]
        self._output_names = [name for name, _ in self._outputs]
        self._taken, self._values = Values(self._inputs, core.input_lists), Values(self._outputs, core.output_lists)
        self._changed = {at for at in core.in_place if at >= 0}  # inputs in whose place an output is

    @property
    def inputs(self) -> dict[str, Type]:
        """Name → type ("f32[1,3,224,224]", with dtype and shape) of each input, in order; of a sequence, those of its
        tensors."""
        return self._taken.types

    @property
    def input_tensors(self) -> dict[str, str]:
        """Name → type of each array that a run takes: those of a sequence `x` are x.0, x.1 …"""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Type]:
        """Name → type of each output; of a sequence or an optional value, what it is made of."""
        return self._values.types

    @property
    def target(self) -> str:
        """The name of what it was compiled for."""
        return self._core.target

    @property
    def stale_records(self) -> int:
        """Records of the database that are for this model and were not used: another build of Tilewright made them, or
        they fit no longer."""
        return int((self._report or {}).get("stale_records", 0))

    @property
    def memory_requests(self) -> dict[str, dict[str, int]]:
        """How kernels for a GPU reach memory, by kernel, as their loops tell of two warps: requests, the sectors of 32
        bytes that these touch, those that their bytes would fill, and requests whose places depend on data (unknown),
        beside them.  Nothing is known of an artifact's, whose loops are gone, and of kernels for CPUs."""
        return dict((self._report or {}).get("requests", {}))

    @property
    def threads(self) -> int:
        """Workers of a run.  It may be set, to a number or None: one for each core."""
        return self._core.threads

    @threads.setter
    def threads(self, count: Threads) -> None:
        self._core.threads, team = checked_team(count)
        if team:
            self._core.team = team

    @property
    def team(self) -> str:
        """Whose threads run it: "own", Tilewright's, or "openmp", those of the process's OpenMP runtime: of PyTorch, or
        of whatever library has loaded one, else of libgomp.  At first what the environment variable TW_TEAM says.

        In a process that computes by OpenMP as well, one team has the cores to itself; alone, "own" is faster.
        """
        return self._core.team

    @team.setter
    def team(self, name: str) -> None:
        self._core.team = name

    @property
    def gpu(self) -> int:
        """The GPU that runs are on, by its ordinal, of an executable for CUDA: the first one, 0, unless it was compiled
        or loaded for another, or is set to another; code and constants go there with the next run.
        CUDA_VISIBLE_DEVICES says which GPUs there are."""
        return self._core.gpu

    @gpu.setter
    def gpu(self, ordinal: int) -> None:
        self._core.gpu = checked_gpu(ordinal)

    def seed(self, seed: int) -> None:
        """Begins the random numbers that runs draw anew: runs from here on are those of any executable of the model
        after the same seed, whatever its target and threads, and each draws other numbers than the one before it.
        An executable begins with seed 0."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
            raise Error("TW1101", f"seed={seed!r} is no seed\nhelp: use a number from 0 to 2**64 - 1")
        self._core.seed(int(seed))

    @property
    def in_place(self) -> dict[str, str]:
        """Output → the input whose array it is: a run changes elements of that array and gives it back."""
        pairs = zip(self._outputs, self._core.in_place, strict=True)
        return {name: self._inputs[at][0] for (name, _), at in pairs if at >= 0}

    def _checked(self, arrays: list[Any], stream: Any = None) -> list[Array]:
        """The inputs in order as arrays; those that a run changes as they are."""
        for at in self._changed:
            array, name = arrays[at], self._inputs[at][0]
            if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.flags.writeable:
                raise Error(
                    "TW1101",
                    f"input {name!r} is changed by a run, and this is no writable, C-contiguous numpy array\n"
                    "help: use np.zeros, or np.array to copy what you have",
                )
            for other in range(len(arrays)):
                if other != at and np.may_share_memory(array, as_array(arrays[other])):
                    raise Error(
                        "TW1101",
                        f"input {name!r} is changed by a run and shares memory with input "
                        f"{self._inputs[other][0]!r}\nhelp: give each its own array",
                    )
        return [
            array
            if at in self._changed
            else as_array(array)
            if type(array) is np.ndarray
            else as_given(array, self._input_names[at], stream)
            for at, array in enumerate(arrays)
        ]

    def _ordered(self, inputs: Mapping[str, Any], stream: Any = None) -> list[Array]:
        if not isinstance(inputs, Mapping):
            names = ", ".join(self.inputs)
            raise Error(
                "TW1101",
                f"inputs are given by name, as a dict, not as {type(inputs).__name__}\n"
                f"help: executable.run({{{', '.join(f'{name!r}: …' for name in self.inputs)}}}), or executable(…) with "
                f"arrays in the order of the inputs: {names}",
            )
        names, inputs = self._input_names, self._taken.tensors(inputs, "input")
        if len(inputs) != len(names) or not all(name in inputs for name in names):
            problems = [f"input {name!r} is missing" for name in names if name not in inputs]
            problems += [f"there is no input {name!r}" for name in inputs if name not in names]
            needed = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
            raise Error("TW1101", "; ".join(problems) + f"\nhelp: the inputs are {needed}")
        return self._checked([inputs[name] for name in names], stream)

    def _given_outputs(self, out: Mapping[str, Any], inputs: list[Array], stream: Any) -> tuple[list[Any], list[Array]]:
        """What `out` has in order, and as arrays, if a run can write to all of them in place."""
        if not isinstance(out, Mapping):
            raise Error("TW1101", f"out is a dict of arrays by name, not {type(out).__name__}")
        names, out = self._output_names, self._values.tensors(out, "out")
        shared: dict[str, Any] = {}
        if self._changed:
            shared = {name: inputs[at] for name, at in zip(names, self._core.in_place, strict=True) if at >= 0}
            out = {**shared, **out}
        if len(out) != len(names) or not all(name in out for name in names):
            known = ", ".join(self._values.names)
            raise Error("TW1101", f"out has {', '.join(out) or 'nothing'}\nhelp: the outputs are {known}")
        for name, array in shared.items():
            if out[name] is not array:
                raise Error("TW1101", f"out[{name!r}] is not the array of its input\nhelp: leave it out")
        given = [out[name] for name in names]
        arrays: list[Array] = given.copy()
        for at, array in enumerate(given):
            if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable:
                continue
            name = f"out[{names[at]!r}]"
            if not _core.is_on_gpu(array):
                raise Error("TW1101", f"{name} is no writable, C-contiguous numpy array\nhelp: use np.empty")
            arrays[at] = _core.view_on_gpu(array, name, stream, True)
        return given, arrays

    def _core_for(self, arrays: Sequence[Array]) -> _core.Executable:
        """Compiles for sizes that are new, where that is wanted."""
        if self._recompile is None or len(self._special) >= MOST_SPECIAL_SIZES:
            return self._core
        shapes = tuple(array.shape for array in arrays)
        if shapes not in self._special:
            with self._lock:
                if shapes not in self._special:
                    sizes, threads = self._core.sizes(shapes), self._core.threads
                    core, self._report = self._recompile([*self._special.values(), sizes])
                    core.threads, core.team = threads, self._core.team
                    if core.gpu != self._core.gpu:
                        core.gpu = self._core.gpu
                    core.share_random_state(self._core)
                    self._core, self._special[shapes] = core, sizes
                    self._log_report()
        return self._core

    def _require_tensors(self, outputs: str) -> None:
        """On the device."""
        if outputs != "device":
            raise Error("TW1101", f'outputs={outputs!r} is no place\nhelp: "host" for numpy arrays, or "device"')
        if any(kind != "sequence" for _, kind, *_ in self._core.output_lists):
            raise Error("TW1101", 'outputs="device" is for tensors, and this model gives others\nhelp: leave it out')

    def _results(self, arrays: list[Array], stream: Any, outputs: str) -> list[Any]:
        core = self._core_for(arrays)
        if outputs == "host":
            return core.run(arrays) if stream is None else core.run(arrays, stream)
        self._require_tensors(outputs)
        return core.run_on_device(arrays, stream)

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | None = None,
        outputs: str = "host",
        stream: Any = None,
    ) -> dict[str, Any]:
        """Runs on arrays by name; gives the outputs by name, in the graph's order.

        A sequence is a list of arrays, which may be views of one that they are parts of; an optional value is None
        where it is absent.

        `out`: arrays to write them to, one for each output, instead of new ones.  Outputs in place of an input are
        that input's array and may be left out.

        The rest is for executables for CUDA. Arrays of `inputs` and `out` may be in the GPU's memory, each for itself:
        tensors of torch or cupy (DLPack, or version 3 of __cuda_array_interface__) and `tw.DeviceArray`. Kernels use
        them where they lie; they are C-contiguous, and copied on the GPU where they begin at no multiple of 64 bytes.
        A second run on the same arrays, and each after it, is one launch of a CUDA graph.

        `outputs`: "host", new outputs are numpy arrays; "device", they are `tw.DeviceArray`, wherever the inputs are.
        `stream`: a cudaStream_t or CUstream, as a number (of PyTorch: stream.cuda_stream) or an object with
        __cuda_stream__. The run is queued there and the call does not wait for it, unless one of its arrays is the
        host's or sizes depend on data: until the stream has come to its end, arrays are neither changed nor let go of
        elsewhere. Without a stream the run begins when the work that is queued on its arrays is done, on those of
        PyTorch in the current stream, and is complete when the call returns.

        Raises Error: TW1101, an input is missing, unknown, or of another shape or type than the model's, lies in the
        memory of a GPU that the executable is not on, or an index that is data lies outside of what it is for;
        TW1102, a function of yours failed.
        """
        arrays = self._ordered(inputs, stream)
        if out is not None:
            if outputs != "host":
                raise Error("TW1101", f"out= says where outputs are\nhelp: leave outputs={outputs!r} out")
            results, written = self._given_outputs(out, arrays, stream)
            core = self._core_for(arrays)
            core.run_into(arrays, written) if stream is None else core.run_into(arrays, written, stream)
        else:
            results = self._results(arrays, stream, outputs)
        return dict(zip(self._values.names, self._values.of(results), strict=True))

    def __call__(self, *inputs: Any, outputs: str = "host", stream: Any = None) -> list[Any]:
        """Runs on arrays in the order of the inputs; gives a list of what `run` gives."""
        names = self._taken.names
        if len(inputs) != len(names):
            raise Error("TW1101", f"{len(inputs)} inputs were given, {len(names)} are needed: {', '.join(names)}")
        tensors = self._taken.tensors(dict(zip(names, inputs, strict=True)), "input")
        arrays = self._checked(list(tensors.values()), stream)
        return self._values.of(self._results(arrays, stream, outputs))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a .twa artifact, for this machine or the one it was compiled for.

        Raises Error (TW1001) where the file cannot be written.
        """
        self._core.save(checked_path(path, "path"))

    def to_bytes(self) -> bytes:
        """What `save` writes; `load_executable` takes it."""
        return self._core.to_bytes()

    def __reduce__(self) -> tuple[Callable[[bytes, int], Executable], tuple[bytes, int]]:
        """Pickled as its artifact.  What calls functions in Python is not: they would have to be there, too."""
        if any(not library for _, library, _ in self._core.host_calls):
            raise Error("TW1102", "an executable that calls functions in Python cannot be pickled")
        return _from_bytes, (self.to_bytes(), self.threads)

    def clone(self) -> Executable:
        """One with memory of its own, so that both run at once; code and constants are shared.

        One executable runs for one caller at a time: give each thread of a server a clone, with threads=1 or few.  Its
        random numbers begin with seed 0, and it compiles for no further sizes (specialise=).
        """
        return Executable(self._core.clone(), self._report)

    def _repr_html_(self) -> str:
        steps = self.describe()["steps"]
        facts = [("target", self.target), ("threads", f"{self.threads} ({self.team})")]
        facts += [("kernels", str(sum(bool(step["kernel"]) for step in steps)))]
        return table("executable", [*facts, *signature(self.inputs, self.outputs)])

    def profile(self, inputs: Mapping[str, Any], repetitions: int = 10) -> Profile:
        """Times every kernel alone, the median of some repetitions, and watches the workers in a run like any other."""
        arrays = self._ordered(inputs)
        on_host = {function for function, _, _ in self._core.host_calls}
        rows = self._core.profile(arrays, repetitions)
        kernels = [Kernel(*row, is_on_host=row[1] in on_host) for row in rows]
        return Profile(kernels, [Span(*row) for row in self._core.trace(arrays, repetitions)])

    @property
    def dimensions(self) -> dict[str, tuple[int, int | None]]:
        """Name → bounds of each open dimension, both included; None: no end."""
        return {name: (low, high) for name, low, high in self._core.dimensions}

    @property
    def profiles(self) -> list[dict[str, tuple[int, int | None]]]:
        """The sizes of open dimensions that have kernels of their own: bounds by name, as of `dimensions`."""
        return [{name: (low, high) for name, low, high in rows} for rows in self._core.profiles]

    def describe(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The plan: kernels, memory, requirements, metadata; at the sizes of these inputs, or the smallest ones."""
        return self._core.describe([array.shape for array in self._ordered(inputs)] if inputs else [])

    def report(self) -> str:
        """How it was compiled, for people: time, kernels, and loops that use one core only where more were meant to."""
        plans = [f"Kernels of their own for {sizes_text(sizes)}" for sizes in self.profiles]
        if self._report is None:
            return "\n".join(["Loaded from an artifact, which does not say how it was compiled.", *plans])
        report = self._report
        lines = [f"{seconds * 1e3:8.1f} ms  {name}" for name, seconds in report["phases"]]
        lines.append(f"{sum(seconds for _, seconds in report['phases']) * 1e3:8.1f} ms in all")
        lines.append(
            f"{report['groups']} groups of nodes, {report['funcs']} different, in {report['kernels']} kernels, "
            f"{report['cached_kernels']} of which were in the cache"
        )
        made = Counter(chosen for _, chosen, _ in report["decisions"])
        if made:
            counts = ", ".join(f"{choice} for {count}" for choice, count in sorted(made.items()))
            other = sum(chosen != analytic for _, chosen, analytic in report["decisions"])
            lines.append(f"Choices of the network, by nodes: {counts}" + f"; {other} not as by analysis" * (other > 0))
        lines += plans
        if (tuned := report.get("tuned_kernels")) is not None:
            used = report["used_records"]
            lines.append(
                f"{tuned} kernels with schedules from the database ({used} record{'s'[: used != 1]}"
                + (f", measured on {' and '.join(measured)}" if (measured := report.get("measured_on")) else "")
                + "), "
                "the others with default ones"
            )
            if choices := report["used_choices"]:
                lines.append(f"{choices} choice{'s'[: choices != 1]} of the network from the database")
        if stale := self.stale_records:
            lines.append(
                f"{stale} records of the database fit no longer or are of another build, and were not used: tune again"
            )
        if serial := report["serial_loops"]:
            lines.append("On one core, for the iterations of these loops were not proven independent:")
            lines += [f"  {loop}" for loop in serial]
        if spilled := report["spilled_buffers"]:
            lines.append("In memory, for these buffers of registers are indexed by variables:")
            lines += [f"  {buffer}" for buffer in spilled]
        return "\n".join(lines)

    def _log_report(self) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("compiled for %s\n%s", self.target, self.report())

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        return f"<tilewright.Executable for {self.target} ({inputs}) -> {', '.join(self.outputs)}>"


def sizes_text(sizes: dict[str, tuple[int, int | None]]) -> str:
    """ "batch=1, seq=1..64"."""
    return ", ".join(
        f"{name}={low}" if low == high else f"{name}={low}..{'' if high is None else high}"
        for name, (low, high) in sizes.items()
    )


def compile(
    model: Model | Source,
    target: str | None = "cpu",
    threads: Threads = None,
    precision: str = "f32",
    db: str | os.PathLike[str] | None = None,
    winograd: bool = True,
    strassen: bool = True,
    shapes: Mapping[str, InputShape] | None = None,
    in_place: Mapping[str, str] | None = None,
    template: Callable[[Schedule], bool] | None = None,
    profiles: Sequence[SizeProfile] | None = None,
    specialise: bool = False,
    operators: Operators = None,
    fallback: str | None = None,
    keep_f32: Sequence[str] = (),
    unfused: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Executable:
    """Compiles a model for a target: "cpu", or None, is this machine, "cuda" its first GPU and "cuda:1" the next one,
    which runs are then on; "cuda:sm_80+ptx" has PTX, too, which the driver compiles for all later GPUs.  `shapes` is as
    of `load`, for what is not loaded yet.

    `threads`: workers of a run, one for each core if None; "openmp": those of the process's OpenMP runtime
    (Executable.team).  `precision`: "f32"; "bf16" rounds weights, operands of
    convolutions and matrix products, and large values between kernels to bf16, with sums and arithmetic in f32; "f16"
    does so with weights only, as "bf16" does where the CPU has no bf16 products (with those that a run waits for);
    "tf32" rounds operands of convolutions, matrix products and attention to tf32 as a GPU's tensor cores multiply them,
    and stores f32.
    `winograd`: whether convolutions of f32 by 3×3, or 3, may go by Winograd's filtering where that is faster; each
    adds a rounding error of at most 5e-5 of its output's magnitude.  `strassen`: whether products and 1×1 convolutions
    of f32 by weights may go by Strassen's algorithm where that is faster; each result rounds two to four times as much
    as its plain sum, and the weights are 7/4 or 49/16 times as large, by 16 MB at most.  `in_place`: output → input,
    such as {"present.0.key": "past.0.key"}: a run takes one array for both and writes only what ScatterND,
    ScatterElements, TensorScatter, GroupQueryAttention or a te.update changes in it; what cannot be done so is refused.
    `db`: a database of tuned schedules and choices of the network (tw.tune); what it has no record of for exactly this
    target and number of threads stays as it is by default.
    `profiles`: sizes of open dimensions, such as [{"batch": 1, "seq": 128}, {"batch": 1, "seq": (1, 32, 64)}], that get
    kernels of their own, those of a model compiled for them; each is exact, (min, max) or (min, opt, max).  A run takes
    those of the first profile that its sizes fit, and the model's where there is none.  `specialise`: sizes that a run
    has for the first time get kernels of their own then, before that run, which takes as long as compiling: once for
    all processes where compiled kernels are kept; up to 32 sizes, later ones run on the model's kernels.
    `operators`, `fallback`: as of `load`, for what is not loaded yet.
    `template`: schedules of your own: called with a Schedule of each kernel, it schedules that and returns True, or
    returns False and leaves the kernel to the target's templates; what it asks with Schedule.decide can be tuned.
    `keep_f32`: nodes of the model, by name, that read, compute and give f32 where `precision` is another.
    `unfused`: nodes that are kernels of their own.  `tw.compare` proposes which.  `skip`: optional passes of graphs
    (relay_ir/passes.def) to leave out, for finding what a difference comes from; code is slower without them.

    Raises Error: what `load` raises; TW1003, an output of `in_place` that no update makes; TW1004, a profile that the
    model cannot have; TW1301, there is no such target, or it has no products of tf32; TW1401, the template did what is
    not legal.
    """
    if not isinstance(model, Model):
        model = load(model, shapes, operators, fallback)
    elif (shapes, operators, fallback) != (None,) * 3:
        raise Error(
            "TW1004",
            "shapes=, operators= and fallback= are for a model that is not loaded yet\nhelp: tw.load(path, shapes=…)",
        )
    checked_precision(precision)
    constraints_of(winograd, strassen)
    count, team = checked_team(threads)
    database = checked_database(db)
    compilation = Compilation(
        checked_target(target),
        count,
        precision,
        winograd,
        strassen,
        checked_in_place(in_place),
        database,
        template,
        schedules_of(model._operators),
        described_profiles(profiles),
        checked_names(keep_f32, "keep_f32"),
        checked_names(unfused, "unfused"),
        checked_names(skip, "skip"),
        functions_of(model._operators),
    )
    core, report = compilation.run(model._core)
    recompile = partial(compilation.run, model._core) if specialise and core.dimensions else None
    if team:
        core.team = team
    executable = Executable(core, report, recompile)
    executable._made_from = weakref.ref(model), compilation
    if stale := executable.stale_records:
        logger.warning(
            "%d of the records of %s for this model fit no longer or are of another build of Tilewright, and are not "
            "used: tune again",
            stale,
            database,
        )
    others = [name for name in (report.get("measured_on") or ()) if report["gpu"] and name != report["gpu"]]
    if others:
        logger.warning(
            "schedules that %s measured on %s are used for this machine's %s: tune here, too",
            database,
            " and ".join(others),
            report["gpu"],
        )
    executable._log_report()
    return executable


def load_executable(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview, operators: Operators = None, gpu: int = 0
) -> Executable:
    """Maps a .twa artifact, or copies the bytes of one.  Its checksums and the machine it needs are checked before any
    code is mapped.

    `operators`: those of the model that are functions in Python, which the artifact names.  `gpu`: of what was compiled
    for CUDA, the GPU to run on, by its ordinal (Executable.gpu).

    Raises Error: TW1001, the file cannot be read; TW1102, an operator of the model is not given; TW1201, it is no
    artifact or is damaged; TW1202, it is for another machine.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        core = _core.load_executable_bytes(bytes(source), checked_gpu(gpu))
    else:
        core = _core.load_executable(checked_path(source, "source"), checked_gpu(gpu))
    give_functions(core, [*with_built_in(operators), *operators_of_artifact(core.host_calls)])
    return Executable(core)


def _from_bytes(data: bytes, threads: int) -> Executable:
    executable = load_executable(data)
    executable.threads = threads
    return executable
