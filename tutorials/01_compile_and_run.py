"""Tutorial 01: compile a model and run it.

    ./dev run python tutorials/01_compile_and_run.py

It makes a small network with onnx.helper, so that nothing has to be downloaded; any .onnx file goes the same way.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

# 1. A model: two convolutions with a residual sum, pooling and a dense layer. ----------------------------------------

rng = np.random.default_rng(0)


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32), name)


graph = helper.make_graph(
    [
        helper.make_node("Conv", ["image", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], name="stem"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], name="body"),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "w3"], ["scores"], transB=1, name="head"),
    ],
    "tutorial",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 64, 64])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
    initializer=[weights("w1", 32, 3, 3, 3), weights("w2", 32, 32, 3, 3), weights("w3", 10, 32)],
)
model_file = Path(tempfile.mkdtemp()) / "tutorial.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model_file)

# 2. Load it.  "batch" is an open dimension; shapes= closes it. ----------------------------------------

model = tw.load(model_file, shapes={"image": (1, 3, 64, 64)})
print(model.explain(), "\n")

# 3. Compile it for this machine and run it. ----------------------------------------

start = time.perf_counter()
executable = tw.compile(model)
print(f"compiled in {time.perf_counter() - start:.2f} s: {executable}")

image = rng.standard_normal((1, 3, 64, 64)).astype(np.float32)
outputs = executable.run({"image": image})  # a dict, in the graph's order
print("scores:", np.round(outputs["scores"][0], 3), "\n")

# The answer agrees with ONNX's own evaluator.
from onnx.reference import ReferenceEvaluator  # noqa: E402

(expected,) = ReferenceEvaluator(str(model_file)).run(None, {"image": image})
np.testing.assert_allclose(outputs["scores"], np.asarray(expected), atol=1e-4)

# 4. Save it.  Loading maps the file; nothing is compiled again. ----------------------------------------

artifact = model_file.with_suffix(".twa")
executable.save(artifact)
start = time.perf_counter()
loaded = tw.load_executable(artifact)
print(
    f"{artifact.name}: {artifact.stat().st_size / 1e3:.0f} kB, loaded in {(time.perf_counter() - start) * 1e3:.1f} ms"
)
np.testing.assert_array_equal(loaded(image)[0], outputs["scores"])  # called with arrays, it gives a list

# 5. Where does the time go? ----------------------------------------

print(executable.profile({"image": image}))

# 6. Mistakes are errors with a code and a way out. ----------------------------------------

try:
    executable.run({"picture": image})
except tw.Error as error:
    print(f"\n{error.code}:\n{error}")
