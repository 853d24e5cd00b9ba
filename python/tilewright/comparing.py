"""Two ways to compute one model, node by node, and the first node that differs.

    print(tw.compare("model.onnx", against="onnxruntime"))
    tw.compare(executable, inputs={"x": array}).to_html("differences.html")

Every node is judged by itself: what it made is compared with what the other side makes of the same inputs, so that a
late node is not blamed for rounding that has accumulated before it.  (Relative debugging: Abramson, Foster, Michalakes
and Sosič, "Relative Debugging", CACM 39(11), 1996.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from .comparison import Check, Comparison, FirstDifference, NodeDifference
from .differences import TOLERANCES, Difference, difference, summary
from .dimension import InputShape, described_profiles
from .error import Error
from .executable import Executable
from .executable import compile as compile_model
from .made_up import made_up_inputs, smallest_sizes
from .model import Model, Source, load
from .options import CompileOptions
from .proposal import nodes_to_keep, nodes_to_leave_alone
from .search_fault import alone, culprit_pass
from .sides import Arrays, Compiled, Network, OnnxRuntime, Oracle, Side
from .watched import stages


def side_of(network: Network, what: Any) -> Side:
    if what == "oracle":
        return Oracle(network)
    if what == "onnxruntime":
        return OnnxRuntime(network)
    if isinstance(what, Mapping):
        return Compiled(network, compile_model(network.model, **what)._compilation)
    if isinstance(what, Executable) and what._made_from and what._made_from[0]() is network.model:
        return Compiled(network, what._made_from[1])
    raise Error(
        "TW1101",
        f"against={what!r} is nothing to compare with\n"
        "help: 'oracle', 'onnxruntime', options of tw.compile such as {'precision': 'f32'}, or an Executable of the "
        "same tw.Model",
    )


def model_of(executable: Executable) -> Model:
    made_from = executable._made_from
    model = made_from[0]() if made_from else None
    if model is None:
        raise Error(
            "TW1101",
            "the model of this executable is not there any more\n"
            "help: keep what tw.load gives, or tw.compare(model, target=…, precision=…)",
        )
    return model


def compare(
    model: Model | Executable | Source,
    against: str | Mapping[str, Any] | Executable = "onnxruntime",
    inputs: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    tolerance: float | None = None,
    shapes: Mapping[str, InputShape] | None = None,
    propose: bool = True,
    progress: bool | None = None,
    **options: Unpack[CompileOptions],
) -> Comparison:
    """Compares two ways to compute a model, node by node.

    `model`: what `tw.load` takes or gives, compiled with `options` (those of `tw.compile`: target, precision, winograd,
    skip, …), or an Executable of a Model that is still there.  The target has to be one that runs here.

    `against`: "onnxruntime", with its optimisations off, for values that the ONNX model names
    (`pip install tilewright[onnxruntime]`); "oracle", the interpreter of what operators mean, which does some ten
    million multiplications a second; options of `tw.compile`, such as {"precision": "f32"}; or another Executable of
    the same model.

    `inputs`: arrays by name, which fix open sizes; else they are made up from `seed`, with `sizes` of open dimensions,
    or the smallest.  `tolerance`: the share of their magnitude that outputs may be off, and a node by itself; 1e-4 for
    f32, 2e-2 for bf16 and 2e-3 for f16 and tf32, which operands of so many bits explain (differences.py).  A smaller
    one is for outputs only where the precision is not f32.

    First all values are asked for in one run, which ends fusion at each.  Where that is right and the model's outputs
    are not, single values are asked for, one a compilation, until the first wrong one is known.  Nodes of control flow
    are one node each, in whose steps rounding accumulates, and random numbers are those of the first run after seed 0.
    With `propose`, the fewest nodes are looked for with which the outputs are within the tolerance, as `keep_f32` where
    the precision is not f32, as `unfused` where fusion makes the difference and no pass does.

    `progress`: shows what is being done; None: in notebooks and at Python's prompt.

    Error: what `tw.compile` and runs raise; TW1101: there is nothing to compare with; TW1003: ONNX Runtime is not
    installed or does not take the model.
    """
    with stages(progress) as say:
        say("compiling the model")
        return comparer(model, against, inputs, seed, sizes, tolerance, shapes, dict(options)).run(propose, say)


def check(
    model: Model | Executable | Source,
    against: str | Mapping[str, Any] | Executable = "onnxruntime",
    inputs: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    tolerance: float | None = None,
    shapes: Mapping[str, InputShape] | None = None,
    **options: Unpack[CompileOptions],
) -> Check:
    """Compares a model's outputs, with one run of each side; `compare` takes the same, and does so by node."""
    return comparer(model, against, inputs, seed, sizes, tolerance, shapes, dict(options)).check()


def comparer(
    model: Model | Executable | Source,
    against: Any,
    inputs: Mapping[str, Any] | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    tolerance: float | None,
    shapes: Mapping[str, InputShape] | None,
    options: dict[str, Any],
) -> Comparer:
    if isinstance(model, Executable):
        if options or shapes is not None:
            raise Error("TW1101", "options are for a model that is not compiled yet\nhelp: give the model instead")
        executable, loaded = model, model_of(model)
    else:
        to_load = {name: options.pop(name) for name in ("operators", "fallback", "constants") if name in options}
        if not isinstance(model, Model):
            loaded = load(model, shapes, **to_load)
        elif shapes is None and not to_load:
            loaded = model
        else:
            raise Error(
                "TW1004",
                "shapes=, operators=, fallback= and constants= are for a model that is not loaded yet\n"
                "help: tw.load(path, shapes=…)",
            )
        executable = compile_model(loaded, **options)
    network = Network(loaded)
    compilation = executable._compilation
    theirs = side_of(network, against)
    feed = dict(inputs) if inputs is not None else made_up(executable, seed, sizes)
    return Comparer(network, executable, Compiled(network, compilation), theirs, tolerance, feed)


def made_up(executable: Executable, seed: int, sizes: Mapping[str, int] | None) -> dict[str, Any]:
    smallest = smallest_sizes(executable.dimensions)
    if unknown := [name for name in sizes or () if name not in smallest]:
        known = ", ".join(smallest) or "none"
        raise Error("TW1101", f"sizes: {unknown[0]!r} is no open dimension\nhelp: the open dimensions are: {known}")
    return made_up_inputs(executable.input_tensors, seed, smallest | dict(sizes or {}))


class Comparer:
    """One comparison on its way."""

    def __init__(
        self,
        network: Network,
        executable: Executable,
        ours: Compiled,
        theirs: Side,
        tolerance: float | None,
        feed: dict[str, Any],
    ):
        self.network, self.executable, self.ours, self.theirs = network, executable, ours, theirs
        usual = TOLERANCES[ours.options.precision]
        self.tolerance = usual if tolerance is None else tolerance
        self.node_tolerance = self.tolerance if ours.options.precision == "f32" else max(self.tolerance, usual)
        taken = executable._taken.names
        if set(feed) == set(executable.input_tensors) != set(taken):  # those of a sequence one by one
            self.inputs = [np.asarray(feed[name]) for name in executable.input_tensors]
        else:
            self.inputs = [np.asarray(array) for array in executable._ordered(feed)]
        if executable._recompile:  # its run has kernels for exactly these sizes
            sizes = executable._core.sizes([array.shape for array in self.inputs])
            profiles = described_profiles([sizes]) + ours.options.profiles
            self.ours = dataclasses.replace(ours, options=dataclasses.replace(ours.options, profiles=profiles))

    def check(self) -> Check:
        outputs = self.outputs(self.theirs.values(self.inputs, self.network.computed_outputs))
        names = [name for name, _ in self.network.graph.outputs if name not in outputs]
        return Check(self.ours.label, self.theirs.label, self.tolerance, outputs, names)

    def run(self, propose: bool, say: Callable[[str], None] = lambda stage: None) -> Comparison:
        say("computing all values by compiled kernels")
        made = self.ours.values(self.inputs)  # first, for it checks the inputs
        say(f"computing them by {self.theirs.label}")
        expected = self.theirs.values(self.inputs)
        from_equal_inputs = self.theirs.recomputed(self.inputs, made)
        rows = self.rows(made, expected, from_equal_inputs)
        outputs = self.outputs(expected)
        first = self.first_of(rows, made, from_equal_inputs, expected)
        is_off = any(not d.is_within(self.tolerance) for d in outputs.values())
        if first is None and is_off:
            say("looking for the first wrong value, one a compilation")
            first = alone(self, rows, outputs, expected) or self.accumulated(outputs, rows, made, expected)
        if first is not None and first.found_by in ("all values", "single values"):
            say("looking for the pass of the compiler that makes the difference")
            reference = (from_equal_inputs if first.found_by == "all values" else expected)[first.place]
            first = dataclasses.replace(first, without_pass=culprit_pass(self, first, made, reference))
        result = Comparison(
            self.ours.label,
            self.theirs.label,
            self.tolerance,
            self.node_tolerance,
            outputs,
            [name for name, _ in self.network.graph.outputs if name not in outputs],
            rows,
            first,
        )
        say("looking for nodes to compile otherwise")
        if propose and is_off and self.ours.options.precision != "f32":
            result.proposal = nodes_to_keep(self, rows, expected)
        elif propose and first and first.found_by == "single values" and not first.without_pass:
            result.proposal = nodes_to_leave_alone(self, first, expected)
        return result

    def rows(self, made: Arrays, expected: Arrays, from_equal_inputs: Arrays) -> list[NodeDifference]:
        result = []
        for at, node in self.network.maker.items():
            if at in made and at in expected:
                own = difference(made[at], from_equal_inputs[at])
                result.append(self.row(at, node, own, difference(made[at], expected[at])))
        for at, node in self.network.known.items():
            if at in expected:  # by ONNX Runtime, which computes what was folded here
                result.append(self.row(at, node, None, difference(self.network.known_value(at), expected[at])))
        order = {id(node): k for k, node in enumerate(self.network.nodes)}
        return sorted(result, key=lambda row: order.get(id(self.network.node_of(row.place)), len(order)))

    def row(self, at: int, node: Any, own: Difference | None, total: Difference) -> NodeDifference:
        is_off = not total.is_within(self.tolerance)
        differs = is_off if own is None else not own.is_within(self.node_tolerance)
        return NodeDifference(at, node.name, node.operator, self.network.name_of(at), own, total, differs, is_off)

    def outputs(self, expected: Arrays) -> dict[str, Difference]:
        """Of the executable itself, without other outputs."""
        arrays = [np.array(a) if at in self.executable._changed else a for at, a in enumerate(self.inputs)]
        self.executable.seed(0)  # as the other runs begin
        given = self.executable._core_for(arrays).run(arrays)
        names = [name for name, _ in self.network.graph.outputs]
        return {
            name: difference(array, expected[at])
            for name, at, array in zip(names, self.network.output_values, given, strict=True)
            if at in expected
        }

    def first_of(
        self, rows: Sequence[NodeDifference], made: Arrays, from_equal_inputs: Arrays, expected: Arrays
    ) -> FirstDifference | None:
        row = next((row for row in rows if row.differs), None)
        if row is None:
            return None
        at = row.place
        if row.own is None:  # folded wrongly
            return self.described(
                row, row.total, row.total, self.network.known_value(at), expected[at], made, "all values"
            )
        return self.described(row, row.own, row.total, made[at], from_equal_inputs[at], made, "all values")

    def described(
        self,
        row: NodeDifference,
        own: Difference,
        total: Difference,
        ours: np.ndarray,
        theirs: np.ndarray,
        made: Arrays,
        found_by: str,
        beside: Sequence[str] = (),
    ) -> FirstDifference:
        node = self.network.node_of(row.place)
        given = dict(zip(self.network.graph.input_values, self.inputs, strict=False)) | made
        read = {name: given[at] for name, at in node.inputs if at in given}
        read |= {
            name: self.network.known_value(at) for name, at in node.inputs if at >= 0 and self.network.is_known(at)
        }
        return FirstDifference(
            row.place,
            row.node,
            row.operator,
            row.output,
            own,
            total,
            summary(ours),
            summary(theirs),
            {name: summary(array) for name, array in read.items()},
            found_by,
            list(beside),
        )

    def accumulated(
        self, outputs: dict[str, Difference], rows: Sequence[NodeDifference], made: Arrays, expected: Arrays
    ) -> FirstDifference:
        """Where no node is off by itself: the first whose value is, or else the one that makes the output that is."""
        row, found_by = next((row for row in rows if row.is_off), None), "accumulated"
        if row is None:
            name = next(name for name, d in outputs.items() if not d.is_within(self.tolerance))
            names = [name for name, _ in self.network.graph.outputs]
            at = self.network.output_values[names.index(name)]
            row = dataclasses.replace(next(row for row in rows if row.place == at), total=outputs[name])
            found_by = "outputs alone"
        at = row.place
        return self.described(row, row.own or row.total, row.total, made[at], expected[at], made, found_by)
