"""What tw.benchmark and `tw bench` measure: not how fast this machine is, but that it is counted right."""

import json
import time

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import model_of, run_tw, small_network, value

NAP = 0.01


def sleeping(seconds=NAP):
    """A model whose runs take this long, and count their inputs."""
    seen = []

    def function(x):
        time.sleep(seconds)
        seen.append(float(x[0]))
        return x

    model = model_of([("Nap", ["x"], ["y"], {"domain": "my"})], [value("x", [4])], [value("y", [4])])
    model.opset_import.add(domain="my", version=1)
    return tw.compile(model, operators=[tw.Operator("my", "Nap", types=lambda x: x, function=function)]), seen


def test_times_are_those_of_runs():
    executable, seen = sleeping()
    result = tw.benchmark(executable, {"x": np.full(4, 3, np.float32)}, seconds=0.3, warm_up=0.05)
    assert set(seen) == {3.0} and len(result.samples) < len(seen)  # the warm-up is not counted
    assert NAP <= result.best <= result.median <= result.percentile(99)
    assert len(result.samples) >= 5 and result.elapsed >= 0.25
    assert result.throughput == pytest.approx(len(result.samples) / result.elapsed)
    assert result.streams == 1 and f"{len(result.samples)} runs" in str(result)
    numbers = result.as_dict()
    assert numbers["runs"] == len(result.samples) and numbers["p50_ms"] == pytest.approx(numbers["median_ms"])


def test_streams_run_at_once():
    """Who sleeps does not need a core: four streams make about four times as many runs."""
    executable, _ = sleeping(0.05)
    one = tw.benchmark(executable, seconds=0.5, warm_up=0)
    four = tw.benchmark(executable, seconds=0.5, warm_up=0, streams=4)
    assert four.streams == 4 and len(four.samples) >= 2 * len(one.samples)
    assert "in 4 streams" in str(four) and "streams" not in str(one)


def test_what_a_stream_raises_is_raised_here():
    executable = tw.compile(small_network())
    with pytest.raises(tw.Error, match="TW1101"):
        tw.benchmark(executable, {"x": np.zeros(3, np.float32)}, seconds=0.1, streams=3)
    for wrong in ({"streams": 0}, {"streams": 1.5}, {"seconds": 0}, {"warm_up": -1}):
        with pytest.raises(tw.Error, match=f"TW1101 .*{next(iter(wrong))}="):
            tw.benchmark(executable, **wrong)
    with pytest.raises(tw.Error, match="TW1101.*is no executable"):
        tw.benchmark(small_network())


def test_bench_for_scripts(tmp_path):
    onnx.save(small_network(), tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    options = ["--json", "--seconds", "0.2", "--streams", "2", "-j", "1", "-i", "x=x.npy", "--kernels"]
    done = run_tw("bench", "m.onnx", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["streams"] == 2 and row["threads"] == 1 and row["runs"] >= 10 and row["gflop"] > 0
    assert row["best_ms"] <= row["median_ms"] <= row["p99_ms"] and row["kernels"][0]["us"] > 0
    wrong = run_tw("bench", "m.onnx", "-i", "y=x.npy", cwd=tmp_path)
    assert wrong.returncode == 2 and "TW1101" in wrong.stderr


def test_the_peak_is_that_of_the_cores_that_are_there(monkeypatch, capsys):
    """99 threads on two cores measured themselves at twice what the machine can do."""
    from tilewright import machine, report

    asked = []
    monkeypatch.setattr(machine, "peak_flops", lambda threads: asked.append(threads) or 1e11)
    monkeypatch.setattr(machine, "read_bandwidth", lambda threads: asked.append(threads) or 1e10)
    executable = tw.compile(small_network(), threads=99)
    feed = {"x": np.zeros((1, 3, 16, 16), np.float32)}
    report.benchmark(executable, feed, tw.benchmark(executable, feed, seconds=0.01, warm_up=0), as_json=True)
    assert json.loads(capsys.readouterr().out)["threads"] == 99
    assert asked and max(asked) <= machine.describe()["threads"]
