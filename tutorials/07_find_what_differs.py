"""Tutorial 07: find the node that makes the numbers wrong.

    ./dev run python tutorials/07_find_what_differs.py

A network that is fine in f32 gives wrong answers in f16.  `tw.compare` says where that begins and what to do about it,
`tw.reduce` makes the smallest model that shows it: what to send with a report, if it had been a fault of the compiler.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

# 1. A network that puts positions on waves: angles are large, and sines of them need all of their bits. --------------

rng = np.random.default_rng(0)


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)


frequencies = np.linspace(100, 400, 32 * 64, dtype=np.float32).reshape(32, 64)  # of each row and column
graph = helper.make_graph(
    [
        helper.make_node("MatMul", ["x", "w1"], ["hidden"], name="embed"),
        helper.make_node("Relu", ["hidden"], ["active"], name="activate"),
        helper.make_node("MatMul", ["active", "w2"], ["turns"], name="project"),
        helper.make_node("Mul", ["turns", "frequencies"], ["angles"], name="angle"),
        helper.make_node("Sin", ["angles"], ["waves"], name="wave"),
        helper.make_node("MatMul", ["waves", "w3"], ["scores"], name="head"),
    ],
    "waves",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 64])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [32, 10])],
    initializer=[
        weights("w1", 64, 64),
        weights("w2", 64, 64),
        weights("w3", 64, 10),
        numpy_helper.from_array(frequencies, "frequencies"),
    ],
)
folder = Path(tempfile.mkdtemp())
model_file = folder / "waves.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model_file)
model = tw.load(model_file)

# 2. In f32 it agrees with ONNX Runtime, node by node. -----------------------------------------------------------------

print(tw.compare(model, against="onnxruntime"), "\n")

# 3. With weights of 16 bits it does not.  No node is wrong: each rounds as f16 does.  What is rounded before the sines
#    is what matters, and that is found by trying. -------------------------------------------------------------------

found = tw.compare(model, against="onnxruntime", precision="f16")
print(found, "\n")
assert found.first and found.first.found_by == "accumulated" and found.proposal
found.to_html(folder / "differences.html")

# 4. What was proposed, used. ------------------------------------------------------------------------------------------

again = tw.compare(model, against="onnxruntime", precision="f16", keep_f32=found.proposal.nodes)
assert again.ok
print(f"With keep_f32={found.proposal.nodes} the scores are off by {again.outputs['scores'].relative:.1e}.\n")

# 5. The smallest model that shows the same: what happens in f16, against f32. -----------------------------------------

small = tw.reduce(model_file, against={"precision": "f32"}, precision="f16")
command = small.save(folder / "small.onnx")
print(small)
print(", ".join(f"{node.name} ({node.op_type})" for node in small.model.graph.node))
print(f"To see it again: {command}")
print(f"All nodes in one page: {folder / 'differences.html'}")
