"""Random models with control flow: If, Loop and Scan in each other, over few values and an open dimension.

All floats are [rows, 4], where `rows` is a number or open.  Conditions come from an input, from sizes, from numbers of
steps or from data; numbers of steps are constants, sizes or an input.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tilewright as tw
from onnx_suite import run_folders

WIDTH = 4


@dataclass
class Scope:
    """What nodes of one graph may use: names of floats [rows, 4]; where there is one, the number of the step."""

    floats: list[str]
    step: str | None = None
    nodes: list = field(default_factory=list)


class Model:
    def __init__(self, seed: int, is_open: bool):
        self.random = np.random.default_rng(seed)
        self.rows = "rows" if is_open else int(self.random.integers(1, 6))
        self.names = 0
        self.initializers = []
        self.left = int(self.random.integers(3, 12))  # nodes of control and others that may still come
        main = Scope(["x", "y"])
        self.fill(main, depth=0)
        if not any(node.op_type in ("If", "Loop", "Scan") for node in main.nodes):
            self.control(main, 0)
        outputs = main.floats[-2:]
        main.nodes += [helper.make_node("Identity", [name], [f"out{i}"]) for i, name in enumerate(outputs)]
        inputs = [self.info("x"), self.info("y"), self.info("yes", TensorProto.BOOL, [])]
        inputs += [self.info("count", TensorProto.INT64, []), self.info("sequence", shape=["steps", self.rows, WIDTH])]
        graph = helper.make_graph(
            main.nodes, f"seed_{seed}", inputs, [self.info(f"out{i}") for i in range(len(outputs))], self.initializers
        )
        self.proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def info(self, name, kind=TensorProto.FLOAT, shape=None):
        return helper.make_tensor_value_info(name, kind, [self.rows, WIDTH] if shape is None else shape)

    def constant(self, array) -> str:
        name = self.name("c")
        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def any_float(self, scope: Scope) -> str:
        # Rather what came last.
        at = min(int(self.random.geometric(0.4)), len(scope.floats))
        return scope.floats[-at]

    def emit(self, scope: Scope, op: str, inputs: list[str], **attributes) -> str:
        name = self.name("v")
        scope.nodes.append(helper.make_node(op, inputs, [name], name=self.name(op), **attributes))
        return name

    def fill(self, scope: Scope, depth: int) -> None:
        for _ in range(int(self.random.integers(1, 4))):
            self.left -= 1
            if depth < 3 and self.left > 0 and self.chance(0.45):
                self.control(scope, depth)
            else:
                self.simple(scope)

    def simple(self, scope: Scope) -> None:
        x = self.any_float(scope)
        kind = self.random.integers(10)
        if kind == 0:
            result = self.emit(scope, "MatMul", [x, self.constant(self.weights())])
        elif kind == 1:
            result = self.emit(scope, "Mul", [x, self.any_float(scope)])
        elif kind == 2:
            result = self.emit(
                scope, "Sub", [x, self.emit(scope, "ReduceMean", [x], axes=[int(self.random.integers(2))])]
            )
        elif kind == 3:
            result = self.emit(scope, "Softmax", [x], axis=1)
        elif kind == 4:
            parts = [self.name("v"), self.name("v")]
            scope.nodes.append(helper.make_node("Split", [x], parts, name=self.name("Split"), axis=1))
            result = self.emit(scope, "Concat", parts[::-1], axis=1)
        elif kind == 5 and scope.step:
            step = self.emit(scope, "Cast", [scope.step], to=TensorProto.FLOAT)
            result = self.emit(scope, "Add", [x, self.emit(scope, "Mul", [step, self.constant(np.float32(0.125))])])
        elif kind == 6:
            result = self.emit(scope, "Identity", [x])
        elif kind == 8:
            result = self.emit(scope, "Add", [x, self.sum_of_some_rows(scope, x)])
        else:
            result = self.emit(scope, "Add", [x, self.any_float(scope)])
        # Values stay small, so that rounding errors do.
        scope.floats.append(self.emit(scope, "Tanh", [result]) if kind != 6 else result)

    def sum_of_some_rows(self, scope: Scope, x: str) -> str:
        """As many as an input says, or those that data chooses: tensors of sizes that only the run knows."""
        if self.chance(0.5):
            count = self.emit(scope, "Reshape", ["count", self.constant(np.array([1]))])
            some = self.emit(scope, "Slice", [x, self.constant(np.array([0])), count, self.constant(np.array([0]))])
        else:
            some = self.chosen_rows(scope, x)
        grown = self.emit(scope, "Sin", [some])
        return self.emit(scope, "ReduceSum", [grown, self.constant(np.array([0]))], keepdims=1)

    def chosen_rows(self, scope: Scope, x: str) -> str:
        column = self.emit(scope, "Gather", [x, self.constant(np.int64(self.random.integers(WIDTH)))], axis=1)
        mask = self.emit(scope, "Greater", [column, self.constant(np.float32(self.random.normal()))])
        return self.emit(scope, "Compress", [x, mask], axis=0)

    def weights(self):
        return self.random.standard_normal((WIDTH, WIDTH)).astype(np.float32) * np.float32(0.5)

    def condition(self, scope: Scope) -> str:
        kind = self.random.integers(4)
        if kind == 0 and scope.step:
            return self.emit(scope, "Less", [scope.step, self.constant(np.int64(self.random.integers(4)))])
        if kind == 1:
            size = self.emit(scope, "Gather", [self.emit(scope, "Shape", ["x"]), self.constant(np.int64(0))])
            return self.emit(scope, "Greater", [size, self.constant(np.int64(self.random.integers(1, 5)))])
        if kind == 2:
            total = self.emit(scope, "ReduceSum", [self.any_float(scope)], keepdims=0)
            return self.emit(scope, "Greater", [total, self.constant(np.float32(self.random.normal()))])
        return "yes"

    def graph(self, scope: Scope, inputs, outputs):
        return helper.make_graph(scope.nodes, self.name("g"), inputs, outputs)

    def branch(self, scope: Scope, depth: int, results: int):
        inner = Scope(list(scope.floats), scope.step)
        if self.chance(0.85):  # else a branch that only hands on
            self.fill(inner, depth + 1)
        names = [self.name("r") for _ in range(results)]
        for name in names:
            inner.nodes.append(helper.make_node("Identity", [self.any_float(inner)], [name]))
        return self.graph(inner, [], [self.info(name) for name in names])

    def control(self, scope: Scope, depth: int) -> None:
        kind = self.random.choice(["If", "Loop", "Loop", "Scan"])
        if kind == "If":
            results = [self.name("v") for _ in range(int(self.random.integers(1, 3)))]
            then, other = (self.branch(scope, depth, len(results)) for _ in range(2))
            condition = self.condition(scope)
            scope.nodes.append(
                helper.make_node("If", [condition], results, self.name("If"), then_branch=then, else_branch=other)
            )
            scope.floats += results
        elif kind == "Loop":
            self.loop(scope, depth)
        else:
            self.scan(scope, depth)

    def body(self, outside: Scope, depth: int, carried: int, step: str | None, extra: list[str]):
        """A scope with values of its own: its carried inputs, what it gives for them, and the scope."""
        before = [self.name("s") for _ in range(carried)]
        inner = Scope(outside.floats[-2:] + extra + before, step)
        self.fill(inner, depth + 1)
        after = [self.name("n") for _ in range(carried)]
        for name in after:
            inner.nodes.append(helper.make_node("Identity", [self.any_float(inner)], [name]))
        return before, after, inner

    def kept(self, inner: Scope, count: int) -> list[str]:
        names = [self.name("k") for _ in range(count)]
        for name in names:
            inner.nodes.append(helper.make_node("Identity", [self.any_float(inner)], [name]))
        return names

    def join(self, scope: Scope, stacked: str) -> str:
        """Of what was kept of each step, something [rows, 4]; of no steps, 0."""
        return self.emit(scope, "Tanh", [self.emit(scope, "ReduceSum", [stacked, self.constant([0])], keepdims=0)])

    def loop(self, scope: Scope, depth: int) -> None:
        carried, step, given, goes_on = int(self.random.integers(1, 3)), self.name("i"), self.name("b"), self.name("b")
        before, after, inner = self.body(scope, depth, carried, step, [])
        grows = self.chance(0.4)
        axis = int(self.random.integers(2)) if grows else 0
        if grows:
            before.append(self.name("s"))
            after.append(self.grown(inner, before[-1], axis))
        ends = self.chance(0.4)
        if ends:
            limit = self.emit(inner, "Less", [step, self.constant(np.int64(self.random.integers(4)))])
            inner.nodes.append(helper.make_node("Identity", [limit], [goes_on]))
        else:
            inner.nodes.append(helper.make_node("Identity", [given], [goes_on]))
        counts = ["constant", "size"] if not ends and self.chance(0.6) else ["input", "constant", "none"]
        count = self.random.choice(counts)
        if count == "none" and not ends:
            count = "input"
        keeps = not ends and count in ("constant", "size")
        kept = self.kept(inner, int(self.random.integers(3)) if keeps else 0)
        steps = {
            # What was kept of no step has no sizes in ONNX Runtime, where they are open.
            "constant": lambda: self.constant(np.int64(self.random.integers(1 if keeps else 0, 5))),
            "size": lambda: self.emit(
                scope, "Gather", [self.emit(scope, "Shape", ["sequence"]), self.constant(np.int64(0))]
            ),
            "input": lambda: "count",
            "none": lambda: "",
        }[count]()
        first = self.condition(scope) if ends and self.chance(0.3) else ""
        shapes = [None] * carried + [[None, WIDTH] if axis == 0 else [self.rows, None]] * grows
        counted = [self.info(step, TensorProto.INT64, []), self.info(given, TensorProto.BOOL, [])]
        graph = self.graph(
            inner,
            counted + [self.info(name, shape=shape) for name, shape in zip(before, shapes, strict=True)],
            [self.info(goes_on, TensorProto.BOOL, [])]
            + [self.info(name, shape=shape) for name, shape in zip(after, shapes, strict=True)]
            + [self.info(name) for name in kept],
        )
        results = [self.name("v") for _ in after + kept]
        start = [self.any_float(scope) for _ in before]
        scope.nodes.append(helper.make_node("Loop", [steps, first, *start], results, self.name("Loop"), body=graph))
        if grows:
            scope.floats.append(self.with_sum(scope, results[carried], axis))
        scope.floats += results[:carried] + [self.join(scope, name) for name in results[carried + grows :]]

    def with_sum(self, scope: Scope, grown: str, axis: int) -> str:
        summed = self.emit(scope, "ReduceSum", [grown, self.constant([axis])], keepdims=1)
        return self.emit(scope, "Tanh", [self.emit(scope, "Add", [self.any_float(scope), summed])])

    def grown(self, inner: Scope, before: str, axis: int) -> str:
        """It and something [rows, 4], which is perhaps made of it, or some of its rows, or it once more."""
        inner.floats.append(self.with_sum(inner, before, axis))
        parts = [before, self.any_float(inner)]
        kind = self.random.integers(4)
        if kind == 0 and axis == 0:
            parts[1] = self.chosen_rows(inner, parts[1])
        elif kind == 1 and inner.step:
            parts[1] = self.emit(inner, "Tanh", [before])
        elif kind == 2 and axis == 0:  # what is there is chosen, too
            parts[0] = self.chosen_rows(inner, before)
        return self.emit(inner, "Concat", parts[:: -1 if self.chance(0.5) else 1], axis=axis)

    def scan(self, scope: Scope, depth: int) -> None:
        part = self.name("e")
        before, after, inner = self.body(scope, depth, int(self.random.integers(1, 3)), None, [part])
        kept = self.kept(inner, int(self.random.integers(1, 3)))
        graph = self.graph(inner, [*map(self.info, before), self.info(part)], [*map(self.info, after + kept)])
        results = [self.name("v") for _ in after + kept]
        directions = [int(self.chance(0.3)) for _ in kept]
        axes = [0 for _ in kept]
        start = [self.any_float(scope) for _ in before]
        scope.nodes.append(
            helper.make_node(
                "Scan",
                [*start, "sequence"],
                results,
                self.name("Scan"),
                body=graph,
                num_scan_inputs=1,
                scan_input_directions=[int(self.chance(0.3))],
                scan_output_directions=directions,
                scan_output_axes=axes,
            )
        )
        scope.floats += results[: len(before)] + [self.join(scope, name) for name in results[len(before) :]]

    def feeds(self, count: int):
        """Inputs of different sizes, numbers of steps and truths."""
        for number in range(count):
            rows = int(self.random.choice([1, 2, 3, 7, 20])) if self.rows == "rows" else self.rows
            steps = int(self.random.choice([1, 2, 3, 9]))
            array = lambda *shape: self.random.standard_normal(shape).astype(np.float32)  # noqa: E731
            yield {
                "x": array(rows, WIDTH),
                "y": array(rows, WIDTH),
                "yes": np.array(number % 2 == 0),
                "count": np.array(int(self.random.integers(0, 5)), np.int64),
                "sequence": array(steps, rows, WIDTH),
            }


def onnxruntime_session(proto, is_optimised: bool):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])


def problem(seed: int, target: str = "cpu", sizes: int = 4, is_optimised: bool = True) -> str:
    """What is wrong with the model of this seed, compiled here, beside ONNX Runtime; "" where nothing is."""
    model = Model(seed, is_open=seed % 2 == 0)
    try:
        session = onnxruntime_session(model.proto, is_optimised)
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:  # it cannot inline some branches
        session = onnxruntime_session(model.proto, False)
    try:
        executable = tw.compile(tw.load(model.proto.SerializeToString()), target)
    except tw.Error as error:
        return f"refused: {error}"
    if seed % 5:  # more than there are cores, too: then some come late
        executable.threads = seed % 5
    for feed in model.feeds(sizes):
        expected = session.run(None, feed)
        for number, (wanted, got) in enumerate(zip(expected, executable.run(feed).values(), strict=True)):
            if wanted.shape != got.shape:
                return f"{got.shape} instead of {wanted.shape}"
            error = float(np.max(np.abs(wanted - got), initial=0))
            if not error <= 1e-4 and not error <= 20 * sensitivity(model, feed, number, wanted):
                where = f"{feed['x'].shape} {feed['sequence'].shape} {feed['count']} {feed['yes']}"
                return f"differs by {error:.3g} where {where}"
    return ""


def in_doubles(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model over f64."""
    double = onnx.ModelProto()
    double.CopyFrom(proto)

    def convert(graph):
        for constant in graph.initializer:
            if constant.data_type == TensorProto.FLOAT:
                array = onnx.numpy_helper.to_array(constant).astype(np.float64)
                constant.CopyFrom(onnx.numpy_helper.from_array(array, constant.name))
        for info in [*graph.input, *graph.output]:
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name == "to":
                    attribute.i = TensorProto.DOUBLE
                if attribute.HasField("g"):
                    convert(attribute.g)

    convert(double.graph)
    return double


def rounded_otherwise(proto: onnx.ModelProto, rows: int, seed: int) -> onnx.ModelProto:
    """The same model with the last bit of each element that Tanh gives changed at random."""
    random = np.random.default_rng(seed)
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    factors = []

    def change(graph):
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            graph.node.append(node)
            for attribute in graph.node[-1].attribute:
                if attribute.HasField("g"):
                    change(attribute.g)
            if node.op_type == "Tanh":
                name, result = f"factor{len(factors)}", node.output[0]
                near = np.float32(1) + random.integers(-1, 2, (rows, WIDTH)) * np.float32(2**-23)
                factors.append(onnx.numpy_helper.from_array(near.astype(np.float32), name))
                graph.node[-1].output[0] = f"{name}_of"
                graph.node.append(helper.make_node("Mul", [f"{name}_of", name], [result]))

    change(changed.graph)
    changed.graph.initializer.extend(factors)
    return changed


def sensitivity(model: Model, feed, output: int, wanted) -> float:
    """How much an output changes by rounding alone.

    Inputs and constants change in their last bit, all rounding is of f64, or results of Tanh change in their last bit
    (Vignes, A stochastic arithmetic for reliable scientific computation, 1993): a loop may double what differs in each
    step, and rows that are equal in one rounding need not be in another.
    """
    double = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feed.items()}
    exact = onnxruntime_session(in_doubles(model.proto), False).run(None, double)[output]
    change = float(np.max(np.abs(exact - wanted), initial=0)) if exact.shape == wanted.shape else 0.0
    for direction in (np.float32(np.inf), -np.float32(np.inf)):

        def near(array, direction=direction):
            return np.nextafter(array, direction) if array.dtype == np.float32 else array

        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        for constant in proto.graph.initializer:
            constant.CopyFrom(onnx.numpy_helper.from_array(near(onnx.numpy_helper.to_array(constant)), constant.name))
        session = onnxruntime_session(proto, False)
        got = session.run(None, {name: near(array) for name, array in feed.items()})[output]
        if got.shape == wanted.shape:
            change = max(change, float(np.max(np.abs(got - wanted), initial=0)))
    for seed in range(8):
        proto = rounded_otherwise(model.proto, len(feed["x"]), seed)
        got = onnxruntime_session(proto, False).run(None, feed)[output]
        if got.shape == wanted.shape:
            change = max(change, float(np.max(np.abs(got - wanted), initial=0)))
    return change


def problems(seeds, timeout=1800, target="cpu", env=None):
    """Of models of these seeds, run in a process of their own, those with a problem: [(seed, what is wrong)]."""
    this = str(Path(__file__))
    answers = run_folders(sys.executable, this, [f"{seed} {target}" for seed in seeds], timeout, env)
    # Some of its optimisations end the process.  What ends it without them is ours.
    again = [f"{line} unoptimised" for line, (status, _) in answers.items() if status == "crashed"]
    second = run_folders(sys.executable, this, again, timeout, env)
    answers |= {line.removesuffix(" unoptimised"): answer for line, answer in second.items()}
    return [(line.split()[0], text) for line, (status, text) in answers.items() if status != "ok"]


if __name__ == "__main__":
    for line in sys.stdin:
        seed, target, *unoptimised = line.split()
        text = problem(int(seed), target, is_optimised=not unoptimised)
        print("wrong" if text else "ok", line.strip(), " ".join(text.split()), sep="\t", flush=True)
