"""Profiles: the trace file, the roofline, and what `tw bench` shows of each kernel."""

import base64
import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conftest import model_of, run_tw, small_network
from tilewright import report
from tilewright.profile import Kernel, Profile, Span


def trace_of(profile, path) -> list[dict]:
    profile.to_perfetto(path)
    content = json.loads(path.read_text())
    assert set(content) == {"traceEvents", "displayTimeUnit"} and content["displayTimeUnit"] == "ms"
    return content["traceEvents"]


def test_a_trace_has_a_track_for_each_worker_and_every_step(executable, x, tmp_path):
    events = trace_of(executable.profile({"x": x}, repetitions=3), tmp_path / "trace.json")
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(tracks) <= {0, 1} and tracks[0] == "worker 0"
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["ph"] for e in events} == {"M", "X"}
    steps = executable.describe()["steps"]
    assert {e["args"]["step"] for e in spans} == set(range(len(steps)))
    for event in spans:
        step = steps[event["args"]["step"]]
        assert (event["name"], event["args"]["kernel"]) == (step["name"], step["kernel"])
        assert event["tid"] in tracks and event["pid"] == 1
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert event["args"]["MFLOP"] == pytest.approx(step["flops"] / 1e6)
    for worker in tracks:  # complete events of one track do not overlap
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == worker)
        assert all(end <= start + 1e-6 for (_, end), (start, _) in zip(own, own[1:], strict=False))


def test_rates_are_those_of_the_whole_step(tmp_path):
    profile = Profile(
        [Kernel("conv", "conv_1", 2e-3, flops=8e6, bytes=4e6)],
        [Span(0, 0, start=1e-3, end=3e-3), Span(1, 0, start=2e-3, end=5e-3)],
    )
    spans = [e for e in trace_of(profile, tmp_path / "t.json") if e["ph"] == "X"]
    assert [(e["tid"], e["ts"], e["dur"]) for e in spans] == [(0, 1000, 2000), (1, 2000, pytest.approx(3000))]
    assert all(e["args"]["GFLOP/s"] == 2 and e["args"]["GB/s"] == 1 for e in spans)


def test_a_trace_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(tw.Error, match="TW1001"):
        Profile([]).to_perfetto(tmp_path / "missing" / "trace.json")


def traces_of(page: str) -> dict[str, dict]:
    """Plotly's data of a page with one chart, by the names of the legend."""
    start = re.search(r'Plotly\.newPlot\(\s*"[^"]*",\s*', page).end()
    data, _ = json.JSONDecoder().raw_decode(page, start)
    return {trace["name"]: trace for trace in data}


def numbers(values) -> list[float]:
    """Plotly writes arrays of numbers as bytes in base64."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]).tolist()
    return values


def test_the_roofline_places_kernels_and_roofs(tmp_path):
    """Peak 100 GFLOP/s, memory 10 GB/s: the ridge is at 10 operations a byte."""
    profile = Profile(
        [
            Kernel("heavy <1>", "a", 1e-3, flops=5e7, bytes=1e6),  # 50 GFLOP/s at 50: half of the peak
            Kernel("stream", "b", 2e-3, flops=2e6, bytes=1e7),  # 1 GFLOP/s at 0.2: half of the slope
            Kernel("copy", "c", 1e-3, flops=0, bytes=1e6),
        ]
    )
    report.roofline(profile, 100e9, 10e9, tmp_path / "r.html", "a & b")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    heavy, stream, roofs = traces_of(page).values()
    assert heavy["hovertext"] == ["heavy <1>: 1000.0 µs, 50% of its bound"]
    assert stream["hovertext"] == ["stream: 2000.0 µs, 50% of its bound"]
    assert (numbers(heavy["x"]), numbers(heavy["y"])) == ([50], [50])
    assert (numbers(stream["x"]), numbers(stream["y"])) == ([0.2], [1])
    assert numbers(stream["marker"]["size"])[0] > numbers(heavy["marker"]["size"])[0]  # more time
    assert roofs["name"] == "100 GFLOP/s, 10.0 GB/s"
    assert numbers(roofs["x"]) == [0.1, 10, 100] and numbers(roofs["y"]) == [1, 100, 100]
    assert "a &amp; b" in page


def test_a_roofline_of_kernels_that_compute_nothing(tmp_path):
    report.roofline(Profile([Kernel("copy", "c", 1e-3, 0, 1e6)]), 1e11, 1e10, tmp_path / "r.html", "copies")
    assert "No kernel computes anything" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_bench_shows_bounds_and_writes_files(tmp_path):
    onnx.save(small_network(), tmp_path / "m.onnx")
    files = ("--roofline", tmp_path / "r.html", "--trace", tmp_path / "t.json")
    done = run_tw("bench", tmp_path / "m.onnx", "--seconds", "0.05", "--kernels", *files)
    assert done.returncode == 0, done.stderr
    assert "reached" in done.stdout and ("memory" in done.stdout or "compute" in done.stdout)
    assert "Roofline" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    refused = run_tw("bench", tmp_path / "m.onnx", "--seconds", "0.05", "--roofline", tmp_path / "no" / "r.html")
    assert refused.returncode == 2 and "TW1001" in refused.stderr


def test_loops_that_end_with_open_rows_count_as_many():
    rows, result = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in (("x", 64), ("y", 256)))
    model = model_of([("MatMul", ["x", "w"], ["y"])], [rows], [result], {"w": np.ones((64, 256), np.float32)})
    executable = tw.compile(tw.load(model.SerializeToString()))
    (kernel,) = executable.profile({"x": np.ones((5, 64), np.float32)}).kernels
    assert kernel.flops == 2 * 5 * 64 * 256
