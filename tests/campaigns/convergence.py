"""How much of what thousands of trials find do 64 trials of the search find?

    ./dev test --campaign convergence [--trials 2000] [--threads 2] [-o curves.html]
    ./dev test --campaign convergence --models ../shared/models     the heaviest kernels of networks in a folder

Eight kernels, two each of ResNet-50, MobileNetV2 and BERT and the attention of ViT and GPT-2, are searched twice: by
the search (64 trials) and by random points followed by evolution (2,000 by default, or until its space has nothing
new).  The winners of both and the default are compiled several times each and run in turn, and the share is the speed
of the search's winner by that of the other's: 1 is all of it.  Nothing fails on times: the figures are printed and
drawn.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/perf")]

from kernel_cases import Case, attention  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import _core  # noqa: E402
from tilewright.made_up import made_up_inputs  # noqa: E402
from tilewright.profile import Kernel  # noqa: E402
from tilewright.tuning import MEASURE_PROGRAM  # noqa: E402

SEARCH_TRIALS = 64
COPIES, ROUNDS = 5, 20  # of a comparison
NETWORKS = ("resnet50", "mobilenet_v2", "bert_base")  # of --models: files whose names begin so


def layer(path: Path, nodes: list, inputs: dict[str, tuple], weights: dict[str, tuple]) -> Path:
    rng = np.random.default_rng(0)

    def constant(name: str, shape: tuple):
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        array = rng.standard_normal(shape) / np.sqrt(max(1, fan_in))
        return numpy_helper.from_array(array.astype(np.float32), name)

    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [constant(name, shape) for name, shape in weights.items()]
        + [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("zero", 0), ("six", 6))]
        + [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("half", 0.5), ("one", 1))]
        + [numpy_helper.from_array(np.array(2**0.5, np.float32), "root")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def case(path: Path, kernel: Case) -> Path:
    onnx.save(kernel.model(), path)
    return path


def layers(folder: Path) -> list[Path]:
    """Of these networks, those that take much of their time, without anything from elsewhere."""
    node = helper.make_node
    conv = {"x": (1, 128, 28, 28)}
    relu = [node("Relu", ["c"], ["y"])]
    clip = [node("Clip", ["c", "zero", "six"], ["y"])]
    gelu = [
        node("Div", ["c", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["f"]),
        node("Mul", ["c", "f"], ["g"]),
        node("Mul", ["g", "half"], ["y"]),
    ]
    dense = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["c"])]
    return [
        layer(
            folder / "resnet50 3x3.onnx",
            [node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4, strides=[2, 2]), *relu],
            conv,
            {"w": (128, 128, 3, 3), "b": (128,)},
        ),
        layer(
            folder / "resnet50 1x1.onnx",
            [node("Conv", ["x", "w", "b"], ["k"]), node("Add", ["k", "r"], ["c"]), *relu],
            {"x": (1, 256, 14, 14), "r": (1, 1024, 14, 14)},
            {"w": (1024, 256, 1, 1), "b": (1024,)},
        ),
        layer(
            folder / "mobilenet_v2 expand.onnx",
            [node("Conv", ["x", "w", "b"], ["c"]), *clip],
            {"x": (1, 96, 14, 14)},
            {"w": (576, 96, 1, 1), "b": (576,)},
        ),
        layer(
            folder / "mobilenet_v2 depthwise.onnx",
            [node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4, group=144), *clip],
            {"x": (1, 144, 56, 56)},
            {"w": (144, 1, 3, 3), "b": (144,)},
        ),
        layer(folder / "bert up.onnx", dense + gelu, {"x": (128, 768)}, {"w": (768, 3072), "b": (3072,)}),
        layer(
            folder / "bert down.onnx",
            [*dense, node("Add", ["c", "r"], ["y"])],
            {"x": (128, 3072), "r": (128, 768)},
            {"w": (3072, 768), "b": (768,)},
        ),
        case(folder / "vit attention.onnx", attention("vit", 12, 197, 197, 64)),
        case(folder / "gpt2 attention.onnx", attention("gpt2", 12, 512, 512, 64, mask="causal")),
    ]


@dataclass
class Curve:
    key: str  # of the task
    best: list[float] = field(default_factory=list)  # time by the default's of the fastest so far, by trial
    winner: str = ""  # decisions of the final's; none: the default's
    final: float = 1.0  # its time by the default's, in the final
    speed: float = 1.0  # its speed by the default's, side by side


def search(model: tw.Model, folder: Path, name: str, trials: int, tasks: int | list[str], threads: int):
    """Curves of the search by the names of so many tasks, the heaviest; or of evolution, of those with these keys."""
    is_evolution = isinstance(tasks, list)
    keys, count = (tasks, len(tasks)) if is_evolution else ([], tasks)
    curves: dict[str, Curve] = {}

    def receive(line: str) -> None:
        event = json.loads(line)
        if event["event"] in ("trial", "final"):
            curve = curves.setdefault(event["task"], Curve(event["key"]))
            ratio = event["ratio_to_default"] if event["status"] == "ok" else 1.0
            if event["event"] == "trial":
                curve.best.append(min(ratio, curve.best[-1] if curve.best else 1.0))
            elif ratio < curve.final:
                curve.final, curve.winner = ratio, event["decisions"]
        if event["event"] == "skipped":
            print(f"  not measured: {event['task']}: {event['reason']}")

    _core.tune(
        model._core,
        "cpu",
        str(folder / f"{name}.db"),
        threads,
        "f32",
        "",
        4 * trials * count + 120,  # seconds: never what ends it
        0,
        str(MEASURE_PROGRAM),
        receive,
        lambda: False,
        most_trials=trials,
        most_tasks=count,
        only_tasks=keys,
        is_evolution=is_evolution,
        choices=False,
    )
    return curves


def compare(model: tw.Model, task: str, schedules: list[str], threads: int) -> np.ndarray:
    """Seconds of the task with each of these decisions: COPIES × ROUNDS × schedules.

    Where its memory came to lie moves a kernel by some percent, so each is compiled several times.
    """

    def compiled(text: str):
        words = (word.split("=") for word in text.split())
        decisions = {name: [int(number) for number in value.split("x")] for name, value in words}
        core, report = _core.compile_decided(model._core, "cpu", threads, decisions, task, "")
        core.threads = threads
        assert report["kernels_of_task"], f"the network has no kernel of task {task}"
        return core, report["kernels_of_task"]

    def time(core, names: list[str]) -> float:
        kernels = [Kernel(*row) for row in core.profile(inputs, 1)]
        return sum(kernel.seconds for kernel in kernels if kernel.symbol in names)

    copies = [[compiled(text) for text in schedules] for _ in range(COPIES)]
    inputs = list(made_up_inputs(dict(copies[0][0][0].inputs), 0).values())
    others = np.zeros(1 << 21)  # takes the place of what the caches hold, as other kernels of a network do
    seconds = np.empty((COPIES, ROUNDS, len(schedules)))
    for i in range(-1, ROUNDS):  # once for nothing
        for c, copy in enumerate(copies):
            for s in np.roll(np.arange(len(schedules)), i):
                others += 1
                seconds[c, max(i, 0), s] = time(*copy[s])
    return seconds


def share_of(model: tw.Model, ours: Curve, theirs: Curve, threads: int) -> float:
    """The speed of our winner by that of theirs, and both by the default's."""
    schedules = list(dict.fromkeys(["", theirs.winner, ours.winner]))
    if len(schedules) > 1:
        seconds = compare(model, ours.key, schedules, threads)
        for curve in (ours, theirs):
            curve.speed = float(np.median(seconds[..., 0] / seconds[..., schedules.index(curve.winner)]))
    if ours.winner == theirs.winner:
        return 1.0
    pair = (schedules.index(curve.winner) for curve in (theirs, ours))
    return float(np.median(np.divide(*(seconds[..., at] for at in pair))))


def stations(curve: Curve) -> str:
    """The curve in a line: the speed of the fastest so far after some trials, by the default's."""
    stops = (8, 16, 32, 64, 125, 250, 500, 1000, 2000, len(curve.best))
    counts = [count for count in sorted(set(stops)) if 0 < count <= len(curve.best)]
    return "  ".join(f"{count}: {1 / curve.best[count - 1]:.3f}" for count in counts)


def draw(results: dict[str, tuple[Curve, Curve]], path: Path) -> None:
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=(len(results) + 1) // 2, cols=2, subplot_titles=[name[-60:] for name in results])
    for i, pair in enumerate(results.values()):
        for curve, name, colour in zip(pair, ("search", "random and evolution"), ("#1d4ed8", "#94a3b8"), strict=True):
            figure.add_scatter(
                x=list(range(1, len(curve.best) + 1)),
                y=[1 / ratio for ratio in curve.best],
                name=name,
                line={"color": colour, "shape": "hv"},
                showlegend=i == 0,
                row=i // 2 + 1,
                col=i % 2 + 1,
            )
    figure.update_xaxes(type="log", title="trials")
    figure.update_yaxes(title="speed by the default's")
    figure.update_layout(height=320 * ((len(results) + 1) // 2), template="plotly_white")
    figure.write_html(path, include_plotlyjs=True)


def campaign(trials: int, threads: int, models: Path | None, output: Path | None, most: int = 8) -> dict[str, float]:
    results: dict[str, tuple[Curve, Curve]] = {}
    shares: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if models is None:
            networks, tasks = layers(folder), 1
        else:
            networks, tasks = [path for path in sorted(models.glob("*.onnx")) if path.name.startswith(NETWORKS)], 2
        for path in networks:
            if len(results) >= most:
                break
            model = tw.load(path)
            ours = search(model, folder, f"{path.stem} search", min(SEARCH_TRIALS, trials), tasks, threads)
            keys = [curve.key for curve in ours.values()]
            theirs = search(model, folder, f"{path.stem} evolution", trials, keys, threads)
            for task in ours:
                name = path.stem if models is None else f"{path.stem.split('.')[0]} {task}"
                results[name] = pair = ours[task], theirs[task]
                shares[name] = share_of(model, *pair, threads)
                print(
                    f"{name[-60:]:60}  {len(pair[0].best):4} trials {pair[0].speed:6.3f}×   "
                    f"{len(pair[1].best):5} trials {pair[1].speed:6.3f}×   share {shares[name]:.3f}",
                    flush=True,
                )
                for which, curve in zip(("search", "evolution"), pair, strict=True):
                    print(f"    {which:9}  {stations(curve)}", flush=True)
    if shares:
        mean = float(np.exp(np.mean(np.log(list(shares.values())))))
        print(f"geometric mean of the shares over {len(shares)} kernels: {mean:.3f}; least {min(shares.values()):.3f}")
    if output:
        draw(results, output)
        print(f"curves: {output}")
    return shares


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="of random points and evolution, each kernel")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", type=Path, help="a folder of networks, instead of the layers made here")
    parser.add_argument("--kernels", type=int, default=8, help="at most")
    parser.add_argument("-o", "--output", type=Path, default=Path("convergence.html"))
    arguments = parser.parse_args()
    campaign(arguments.trials, arguments.threads, arguments.models, arguments.output, arguments.kernels)
