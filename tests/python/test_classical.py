"""Models and preprocessing of ai.onnx.ml, beside ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.report import tensors_of

KINDS = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("float64"): TensorProto.DOUBLE}
KINDS |= {np.dtype("int64"): TensorProto.INT64, np.dtype("int32"): TensorProto.INT32}
KINDS |= {np.dtype(object): TensorProto.STRING}


def model(op, feed, outputs, **attributes):
    node = helper.make_node(op, list(feed), [name for name, _ in outputs], domain="ai.onnx.ml", **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, KINDS[array.dtype], ["rows", *array.shape[1:]] if array.ndim > 1 else array.shape
        )
        for name, array in feed.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(n, k, None) for n, k in outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def check(op, feed, *kinds, exact=False, **attributes):
    outputs = [(f"y{i}", kind) for i, kind in enumerate(kinds or (TensorProto.FLOAT,))]
    data = model(op, feed, outputs, **attributes)
    wanted = onnxruntime.InferenceSession(data).run(None, feed)
    for got, expected in zip(tw.compile(tw.load(data)).run(feed).values(), wanted, strict=True):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        if exact or got.dtype.kind != "f":
            np.testing.assert_array_equal(got, expected)
        else:
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def rows(*shape, dtype=np.float32):
    return (np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_scaler(dtype):
    x = {"x": rows(7, 3, dtype=dtype)}
    check("Scaler", x, offset=[0.5, -1.0, 2.0], scale=[2.0, 0.25, 1.5])
    check("Scaler", x, offset=[0.5], scale=[0.1])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    x = rows(7, 5)
    x[3] = 0
    check("Normalizer", {"x": np.abs(x) if norm == "MAX" else x}, norm=norm)


def test_binarizer():
    check("Binarizer", {"x": rows(5, 4)}, threshold=0.5)
    check("Binarizer", {"x": np.array([[0.5, 0.50001, -1]], np.float32)}, threshold=0.5)


@pytest.mark.parametrize("missing", [float("nan"), -1.0])
def test_imputer(missing):
    x = rows(6, 3)
    x[[0, 2, 5], [1, 2, 0]] = missing
    check("Imputer", {"x": x}, replaced_value_float=missing, imputed_value_floats=[1.0, 2.0, 3.0])
    check("Imputer", {"x": x}, replaced_value_float=missing, imputed_value_floats=[9.0])
    whole = np.array([[1, -7], [-7, 2]])
    check("Imputer", {"x": whole}, TensorProto.INT64, replaced_value_int64=-7, imputed_value_int64s=[5, 6])


def test_columns_by_number():
    x = {"x": rows(4, 6)}
    y = np.array([4, 0, 4], np.int64)
    data = model("ArrayFeatureExtractor", x | {"i": y}, [("y", TensorProto.FLOAT)])
    got = tw.compile(tw.load(data)).run(x | {"i": y})["y"]
    np.testing.assert_array_equal(got, x["x"][:, y])


def test_columns_side_by_side():
    feed = {"a": rows(5, 2), "b": rows(5, 3)}
    check("FeatureVectorizer", feed, inputdimensions=[2, 3])


def test_labels_by_keys():
    x = {"x": np.array([[3, 1], [7, 1], [9, -4]])}
    check("LabelEncoder", x, TensorProto.INT64, keys_int64s=[1, 3, 9], values_int64s=[10, 30, -90], default_int64=5)
    check("LabelEncoder", x, keys_int64s=[1, 3, 9], values_floats=[0.1, float("inf"), -9.5], default_float=2.5)
    floats = {"x": np.array([0.5, 2.0, 3.0], np.float32)}
    check("LabelEncoder", floats, TensorProto.INT64, keys_floats=[0.5, 3.0], values_int64s=[1, 2])
    with pytest.raises(tw.Error, match="there twice"):
        tw.load(model("LabelEncoder", x, [("y", TensorProto.INT64)], keys_int64s=[1, 1], values_int64s=[2, 3]))


@pytest.mark.parametrize("zeros", [0, 1])
def test_one_hot(zeros):
    check("OneHotEncoder", {"x": np.array([[3], [1], [9]])}, cats_int64s=[1, 3, 9], zeros=zeros)
    data = model("OneHotEncoder", {"x": np.array([[4]])}, [("y", TensorProto.FLOAT)], cats_int64s=[1, 3], zeros=zeros)
    executable = tw.compile(tw.load(data))
    if zeros:
        assert executable.run({"x": np.array([[4]])})["y"].tolist() == [[[0, 0]]]
        return
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"x": np.array([[4]])})
    assert executable.run({"x": np.array([[3]])})["y"].tolist() == [[[0, 1]]]


@pytest.mark.parametrize(("form", "targets"), [("NONE", 1), ("NONE", 3), ("LOGISTIC", 3), ("SOFTMAX", 3)])
def test_linear_regressor(form, targets):
    coefficients = rows(targets * 4).tolist()
    check(
        "LinearRegressor",
        {"x": rows(9, 4)},
        coefficients=coefficients,
        intercepts=rows(targets).tolist(),
        targets=targets,
        post_transform=form,
    )


@pytest.mark.parametrize("form", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 4])
def test_linear_classifier(form, classes):
    check(
        "LinearClassifier",
        {"x": rows(50, 4)},
        TensorProto.INT64,
        TensorProto.FLOAT,
        coefficients=rows(classes * 4).tolist(),
        intercepts=rows(classes).tolist(),
        classlabels_ints=[7, -2, 5, 11][:classes],
        post_transform=form,
    )


def test_two_classes_by_one_score():
    """ONNX Runtime gives 1 - s beside a score s that is not transformed, ONNX's reference evaluator -s."""
    one_row = {"coefficients": rows(4).tolist(), "intercepts": [0.25], "classlabels_ints": [3, 8]}
    x = {"x": rows(50, 4)}
    check("LinearClassifier", x, TensorProto.INT64, TensorProto.FLOAT, post_transform="LOGISTIC", **one_row)
    outputs = [("label", TensorProto.INT64), ("scores", TensorProto.FLOAT)]
    data = model("LinearClassifier", x, outputs, post_transform="NONE", **one_row)
    labels, scores = ReferenceEvaluator(onnx.load_from_string(data)).run(None, x)
    got = tw.compile(tw.load(data)).run(x)
    np.testing.assert_array_equal(got["label"], labels)
    np.testing.assert_allclose(got["scores"], scores, rtol=1e-5, atol=1e-5)


def test_labels_and_categories_that_are_strings():
    names = ["setosa", "Ärger", "no, none"]
    x = {"x": rows(30, 2)}
    labels = {"coefficients": rows(6).tolist(), "intercepts": [0.0, 0.1, 0.2], "classlabels_strings": names}
    check("LinearClassifier", x, TensorProto.STRING, TensorProto.FLOAT, **labels)
    words = {"x": np.array([["setosa", "unheard of"], ["no, none", "Ärger"]], dtype=object)}
    check("LabelEncoder", words, TensorProto.INT64, keys_strings=names, values_int64s=[7, 8, 9], default_int64=-5)
    check("LabelEncoder", words, TensorProto.STRING, keys_strings=names, values_strings=names[::-1], default_string="?")
    check("LabelEncoder", {"x": np.array([3, 4])}, TensorProto.STRING, keys_int64s=[4], values_strings=["four"])
    check("OneHotEncoder", words, cats_strings=names, zeros=1)
    executable = tw.compile(tw.load(model("OneHotEncoder", words, [("y", TensorProto.FLOAT)], cats_strings=names)))
    assert executable.inputs == {"x": "text(i64[rows,2])"}
    fixed = {"x": np.array(words["x"], str)}
    np.testing.assert_array_equal(executable.run(fixed)["y"], executable.run(words)["y"])
    with pytest.raises(tw.Error, match="is no array of strings"):
        executable.run({"x": np.zeros((2, 2))})


def test_maps_of_classes_to_scores(tmp_path):
    x = {"x": rows(4, 3)}
    for keys in ({"classlabels_strings": ["a", "b", "c"]}, {"classlabels_int64s": [7, -1, 3]}):
        node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **keys)
        (names,) = keys.values()
        kind = TensorProto.STRING if isinstance(names[0], str) else TensorProto.INT64
        of_map = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        y = helper.make_value_info("y", helper.make_sequence_type_proto(of_map))
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])], [y])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
        data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
        executable = tw.compile(tw.load(data))
        assert executable.outputs == {"y": "map(f32[n,3])"}
        wanted = onnxruntime.InferenceSession(data).run(None, x)[0]
        assert executable.run(x)["y"] == wanted
        assert tensors_of({"y": wanted, "l": np.array(["a"], dtype=object)})["y"].shape == (4, 3)
        executable.save(tmp_path / "maps.twa")
        assert tw.load_executable(tmp_path / "maps.twa").run(x)["y"] == wanted


def test_what_is_not_supported_is_refused():
    scores = [("s", TensorProto.FLOAT)]
    with pytest.raises(tw.Error, match="post_transform=CUBE"):
        tw.load(model("LinearRegressor", {"x": rows(3, 1)}, scores, coefficients=[1.0], post_transform="CUBE"))
    words = {"x": np.array([["a"]], dtype=object)}
    with pytest.raises(tw.Error, match="elements of type string"):
        tw.load(model("Scaler", words, scores, scale=[1.0]))
    with pytest.raises(tw.Error, match="keys that are strings of numbers"):
        tw.load(model("LabelEncoder", {"x": rows(3, 1)}, scores, keys_strings=["a"], values_floats=[1.0]))
    node = helper.make_node("Identity", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    with pytest.raises(tw.Error, match="strings of an input, which the model may not know"):
        tw.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
