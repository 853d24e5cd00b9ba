"""What notebooks show, and what long calls show where somebody watches."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import small_network
from tilewright.watched import is_watched

FEED = {"x": np.ones((1, 3, 16, 16), np.float32)}


@pytest.fixture(scope="module")
def shown():
    model = tw.load(small_network())
    executable = tw.compile(model, threads=1)
    return {
        "model": model,
        "executable": executable,
        "profile": executable.profile(FEED),
        "benchmark": tw.benchmark(executable, FEED, seconds=0.01),
        "check": tw.check(executable),
        "comparison": tw.compare(executable),
        "reduction": tw.reduce(small_network(), fails=lambda model: True),
        "report": tw.TuneReport(tasks=3),
    }


def test_each_is_html_that_says_what_it_is(shown):
    said = {
        "model": ["x: f32[1,3,16,16]", "y: f32[1,10]", "Conv"],
        "executable": ["target", "threads", "x: f32[1,3,16,16]"],
        "profile": ["share", "conv"],
        "benchmark": ["median"],
        "check": ["ONNX Runtime"],
        "comparison": ["no node differs"],
        "reduction": ["nodes"],
        "report": ["3 tasks"],
    }
    for name, value in shown.items():
        html = value._repr_html_()
        text = "".join(ElementTree.fromstring(f"<body>{html}</body>").itertext())
        assert all(part.lower() in text.lower() for part in said[name]), (name, text)


def test_names_of_models_are_text():
    model = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["<b>x</b>"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("<b>x</b>", 1, [2])],
        [onnx.helper.make_tensor_value_info("y", 1, [2])],
    )
    html = tw.load(onnx.helper.make_model(model, ir_version=8))._repr_html_()
    assert "<b>x" not in html and "&lt;b&gt;x" in html


SCRIPT = """
import sys
import tilewright as tw

sys.ps1 = ">>> "  # as at the prompt
tw.tune(sys.argv[1], db=sys.argv[2], budget="1s", threads=1)
print(tw.compare(sys.argv[1]).ok)
"""


def test_at_the_prompt_long_calls_tell_what_they_do(tmp_path):
    onnx.save(small_network(), tmp_path / "net.onnx")
    command = [sys.executable, "-c", SCRIPT, tmp_path / "net.onnx", tmp_path / "tune.db"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "True\n"
    assert "choices of the network" in done.stderr and "tasks" in done.stderr


def test_scripts_are_not_watched(capfd):
    assert not is_watched()
    tw.compare(small_network())
    assert capfd.readouterr() == ("", "")
    tw.compare(small_network(), progress=True)
