"""How much of what thousands of trials find do 64 trials of the search find?

    ./dev test --campaign convergence [--trials 2000] [--threads 2] [-o curves.html]
    ./dev test --campaign convergence --models ../shared/models     the heaviest kernels of networks in a folder

Six kernels, two each of ResNet-50, MobileNetV2 and BERT, are searched twice: by the search (64 trials) and by random
points followed by evolution (2,000 by default, or until its space has nothing new).  The leaders of each are measured
in finals beside the default, and the share is the speed of the search's winner by that of the other's: 1 is all of it.
Nothing fails on times: the figures are printed and drawn.
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
sys.path.insert(0, str(ROOT / "python"))

import tilewright as tw  # noqa: E402
from tilewright import _core  # noqa: E402
from tilewright.tune import MEASURE_PROGRAM  # noqa: E402

SEARCH_TRIALS = 64
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


def layers(folder: Path) -> list[Path]:
    """Of the three networks, those that take much of their time, without anything from elsewhere."""
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
    ]


@dataclass
class Curve:
    best: list[float] = field(default_factory=list)  # time by the default's of the fastest so far, by trial
    final: float = 1.0  # of the winner, measured beside the default; 1: the default


def search(model: tw.Model, folder: Path, name: str, trials: int, tasks: int, threads: int, is_evolution: bool):
    """Curves by the names of the heaviest tasks."""
    curves: dict[str, Curve] = {}

    def receive(line: str) -> None:
        event = json.loads(line)
        if event["event"] in ("trial", "final"):
            curve = curves.setdefault(event["task"], Curve())
            ratio = event["ratio_to_default"] if event["status"] == "ok" else 1.0
            if event["event"] == "trial":
                curve.best.append(min(ratio, curve.best[-1] if curve.best else 1.0))
            else:
                curve.final = min(curve.final, ratio)
        if event["event"] == "skipped":
            print(f"  not measured: {event['task']}: {event['reason']}")

    _core.tune(
        model._core,
        "cpu",
        str(folder / f"{name}.db"),
        threads,
        "f32",
        True,
        4 * trials * tasks + 120,  # seconds: never what ends it
        0,
        str(MEASURE_PROGRAM),
        receive,
        lambda: False,
        most_trials=trials,
        most_tasks=tasks,
        is_evolution=is_evolution,
        choices=False,
    )
    return curves


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


def campaign(trials: int, threads: int, models: Path | None, output: Path | None, most: int = 6) -> dict[str, float]:
    results: dict[str, tuple[Curve, Curve]] = {}
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
            ours = search(model, folder, f"{path.stem} search", min(SEARCH_TRIALS, trials), tasks, threads, False)
            theirs = search(model, folder, f"{path.stem} evolution", trials, tasks, threads, True)
            for task in ours.keys() & theirs.keys():
                name = path.stem if models is None else f"{path.stem.split('.')[0]} {task}"
                results[name] = pair = ours[task], theirs[task]
                ours_speed, theirs_speed = (1 / curve.final for curve in pair)
                print(
                    f"{name[-60:]:60}  {len(pair[0].best):4} trials {ours_speed:6.3f}×   "
                    f"{len(pair[1].best):5} trials {theirs_speed:6.3f}×   share {ours_speed / theirs_speed:.3f}",
                    flush=True,
                )
    shares = {name: theirs.final / ours.final for name, (ours, theirs) in results.items()}
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
    parser.add_argument("--kernels", type=int, default=6, help="at most")
    parser.add_argument("-o", "--output", type=Path, default=Path("convergence.html"))
    arguments = parser.parse_args()
    campaign(arguments.trials, arguments.threads, arguments.models, arguments.output, arguments.kernels)
