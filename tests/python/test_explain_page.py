"""`tw explain --html`: coverage, parts and costs as a page."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from conftest import run_tw, value
from test_fallback import inverse, loaded, model_with, two_inverses
from test_tuning_page import chromium


def without_tags(page):
    return re.sub(r"<[^>]+>", "|", page)


def test_parts_are_drawn_with_what_passes(tmp_path):
    network = loaded(two_inverses())
    network.explain_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    text = without_tags(page)
    assert "Of 8 nodes: |6 compiled|, |2 functions of the host" in text
    assert page.count('rx="6"') == 5 and page.count("1 node, ONNX Runtime") == 2  # a product, …, a sum
    assert "first (Inverse)" in text and "second (Inverse)" in text
    for passed in ("b", "c", "f", "h"):
        assert f"{passed}: f32[4,8,8]" in text
    assert page.count("marker-end") == 5 and "http" not in page
    tree = chromium(f"--user-data-dir={tmp_path}/profile", "--enable-logging=stderr", "--dump-dom",
                    (tmp_path / "page.html").as_uri())  # fmt: skip
    assert tree.returncode == 0 and "CONSOLE" not in tree.stderr, tree.stderr[-3000:]


def test_what_is_refused_has_a_reason(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(two_inverses(), path)
    assert run_tw("explain", path, "--html", tmp_path / "page.html").returncode == 0
    text = without_tags((tmp_path / "page.html").read_text())
    assert "|6 compiled|, |2 not supported" in text and "first, second" in text


def test_costs_are_those_of_the_nodes(tmp_path):
    """At the typical size of an open dimension, which is the least."""
    weight = numpy_helper.from_array(np.ones((64, 32), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Reshape", ["a", "shape"], ["b"], "view"),
        helper.make_node("Relu", ["b"], ["y"], "clip"),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", ["n", 64])], [value("y", None)],
        [weight, numpy_helper.from_array(np.array([-1, 4, 8]), "shape")],
    )  # fmt: skip
    model = tw.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10),
                    shapes={"x": (tw.Dim("n", 10, 20), 64)})  # fmt: skip
    model.explain_html(tmp_path / "page.html")
    lines = re.findall(r"<tr>(.*?)</tr>", (tmp_path / "page.html").read_text())
    cells = {line[0]: line[1:] for line in (re.findall(r"<td>(.*?)</td>", line) for line in lines) if line}
    assert cells["product"] == ["MatMul", "41 kFLOP", "99.2 %", "8.19 kB", "1.28 kB"]
    assert cells["view"] == ["Reshape", "0 FLOP", "0.0 %", "0 B", "0 B"]
    assert cells["clip"][-1] == "1.28 kB"


def test_names_are_escaped_and_mistakes_named(tmp_path):
    square = [value("x", [4, 4])], [value("y", [4, 4], TensorProto.FLOAT)]
    model = model_with([inverse("x", "y", "<b>")], *square)
    tw.explain(model, html=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;" in page and "<b>" not in page
    with pytest.raises(tw.Error, match="TW1001"):
        tw.explain(model, html=tmp_path)
