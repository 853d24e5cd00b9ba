"""Tutorial 06: operators of your own, and what to do with nodes that are refused.

    ./dev run python tutorials/06_an_operator_of_your_own.py

A model may have nodes that Tilewright does not know.  They are refused when it is loaded, all at once.  Then you can
say what they do: by a tensor expression, which is compiled like any operator; by a function in Python; by one in C.
Or you leave them to ONNX Runtime.
"""

import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import te

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)

# 1. A model with two operators that nobody else has, and one that ONNX Runtime has. ----------------------------------

weights = {f"w{k}": rng.standard_normal((64, 64)).astype(np.float32) / 8 for k in range(2)}
graph = helper.make_graph(
    [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Smooth", ["a"], ["b"], name="smooth", domain="example", sharpness=2.0),
        helper.make_node("MatMul", ["b", "w1"], ["c"]),
        helper.make_node("Rank", ["c"], ["y"], name="rank", domain="example"),
    ],
    "two_of_our_own",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
    [helper.make_tensor_value_info("y", TensorProto.INT64, ["batch", 64])],
    initializer=[numpy_helper.from_array(array, name) for name, array in weights.items()],
)
opsets = [helper.make_opsetid("", 20), helper.make_opsetid("example", 1)]
model_file = folder / "model.onnx"
onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), model_file)

try:
    tw.load(model_file)
except tw.Error as error:
    print(f"Without a word from us it is refused:\n\n{error}\n")

# 2. An expression: what each element of the result is.  Attributes of the node are keyword arguments. ----------------


def smooth(x: te.Tensor, sharpness: float) -> te.Tensor:
    """x · sigmoid(sharpness · x).  Shapes may have open dimensions, as here the batch."""
    return te.compute("smooth", x.shape, lambda *i: x[i] * te.sigmoid(x[i] * sharpness))


# 3. A function in Python: from shapes to shapes, when the model is loaded, and from arrays to arrays, in a run. -------


def types_of_rank(x: tw.ArrayType) -> tw.ArrayType:
    return tw.ArrayType("i64", x.shape)


def rank(x: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(x, axis=1), axis=1)


operators = [
    tw.Operator("example", "Smooth", expression=smooth),
    tw.Operator("example", "Rank", types=types_of_rank, function=rank),
]
executable = tw.compile(tw.load(model_file, operators=operators))
x = rng.standard_normal((32, 64)).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    a = x @ weights["w0"]
    return rank(a / (1 + np.exp(-2 * a)) @ weights["w1"])


agreement = np.mean(executable.run({"x": x})["y"] == expected(x))  # where two values are close, sums decide
print(f"Ranks that are as numpy computes them: {agreement:.1%}\n")
print("Smooth is part of the product's kernel; Rank is called by the run:\n")
print(executable.profile({"x": x}), "\n")

# 4. A function in C, from a shared library.  An artifact names the library, and runs without Python. ------------------

(folder / "rank.c").write_text(
    """
#include <tilewright.h>

const char* rank(const char* attributes, int32_t input_count, const tw_argument* inputs, int32_t output_count,
                 const tw_argument* outputs) {
  const float* x = inputs[0].data;
  int64_t* y = outputs[0].data;
  const int64_t rows = inputs[0].type.shape[0], columns = inputs[0].type.shape[1];
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    for (int64_t i = 0; i < columns; ++i) {
      y[i] = 0;
      for (int64_t k = 0; k < columns; ++k) y[i] += x[k] < x[i] || (x[k] == x[i] && k < i);
    }
  }
  return 0; /* or a message, which ends the run */
}
"""
)
library, compiler = folder / "librank.so", shutil.which("cc")
if compiler is None:
    print("There is no C compiler here: the function stays in Python.")
else:
    options = ["-O2", "-shared", "-fPIC", f"-I{tw.get_include()}"]
    subprocess.run([compiler, *options, folder / "rank.c", "-o", library], check=True)
    operators[1] = tw.Operator("example", "Rank", types=types_of_rank, library=library, symbol="rank")
    in_c = tw.compile(tw.load(model_file, operators=operators))
    print(f"By the function in C: {np.mean(in_c.run({'x': x})['y'] == expected(x)):.1%}")
    in_c.save(folder / "model.twa")
    assert (tw.load_executable(folder / "model.twa").run({"x": x})["y"] == in_c.run({"x": x})["y"]).all()

# 5. An expression may bring a schedule of its own, and an update may be in place. -------------------------------------


def rows_in_vectors(schedule: tw.Schedule) -> bool:
    """Asked about each kernel that the operator is in; False leaves one to the target.  (More: tutorials 02 and 05.)"""
    if len(schedule.blocks()) != 1:
        return False  # it is fused with a product, which has templates of its own
    *_, column = schedule.loops(schedule.blocks()[0])
    lanes = schedule.decide("lanes", [4, 8, 16], analytic=8)  # which tw.tune tries
    schedule.vectorize(schedule.split(column, [None, lanes])[1])
    return True


def append(cache: te.Tensor, rows: te.Tensor, at: te.Tensor) -> te.Update:
    """The cache with rows put to position at; what lies outside is left out."""
    return te.update("append", cache, rows.shape, lambda i, j: (at[0] + i, j), lambda i, j: rows[i, j])


graph = helper.make_graph(
    [
        helper.make_node("Smooth", ["token"], ["row"], domain="example", sharpness=2.0),
        helper.make_node("Append", ["past", "row", "at"], ["present"], domain="example"),
    ],
    "a_cache",
    [
        helper.make_tensor_value_info("past", TensorProto.FLOAT, [128, 64]),
        helper.make_tensor_value_info("token", TensorProto.FLOAT, [1, 64]),
        helper.make_tensor_value_info("at", TensorProto.INT64, [1]),
    ],
    [helper.make_tensor_value_info("present", TensorProto.FLOAT, [128, 64])],
)
model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
operators = [
    tw.Operator("example", "Smooth", expression=smooth, schedule=rows_in_vectors),
    tw.Operator("example", "Append", expression=append),
]
step = tw.compile(tw.load(model, operators=operators), in_place={"present": "past"})
cache = np.zeros((128, 64), np.float32)
for position in range(3):
    outputs = step.run({"past": cache, "token": x[position : position + 1], "at": np.array([position])})
assert outputs["present"] is cache
np.testing.assert_allclose(cache[:3], x[:3] / (1 + np.exp(-2 * x[:3])), rtol=1e-5)
print(f"Rows of the cache that are filled: {np.count_nonzero(cache.any(axis=1))}")

# 6. Or leave what is refused to ONNX Runtime: here an operator of its own.  It says loudly what it computes. ----------

graph = helper.make_graph(
    [
        helper.make_node("MatMul", ["m", "m"], ["square"]),
        helper.make_node("Inverse", ["square"], ["inverse"], name="inverse", domain="com.microsoft"),
        helper.make_node("Relu", ["inverse"], ["y"]),
    ],
    "inverse",
    [helper.make_tensor_value_info("m", TensorProto.FLOAT, [8, 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 8])],
)
opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    with_fallback = tw.compile(tw.load(model, fallback="onnxruntime"))
print(f"\n{said[0].message}\n")
m = rng.standard_normal((8, 8)).astype(np.float32)
profile = with_fallback.profile({"m": m})
np.testing.assert_allclose(with_fallback.run({"m": m})["y"], np.maximum(np.linalg.inv(m @ m), 0), rtol=1e-2, atol=1e-2)
print(f"ONNX Runtime takes {profile.host_share:.0%} of the time.")
