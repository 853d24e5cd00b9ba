"""What bad models get: an error with the right code that names the culprit; never an abort, never an answer."""

import gzip

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from conftest import FLOAT, INT64, model_of, small_network, value

CASES = []


def case(code: int, *mentions: str, **load_options):
    """Registers a function that makes a bad model: loading and compiling it must fail with `code`."""

    def register(make):
        CASES.append(pytest.param(make, code, mentions, load_options, id=f"{code}-{make.__name__}"))
        return make

    return register


def unary(op, shape=(2, 3), opset=17, dtype=FLOAT, **attributes):
    return model_of(
        [(op, ["x"], ["y"], attributes)], [value("x", shape, dtype)], [value("y", None, dtype)], opset=opset
    )


def binary(op, a, b, a_type=FLOAT, b_type=FLOAT, **attributes):
    inputs = [value("a", a, a_type), value("b", b, b_type)]
    return model_of([(op, ["a", "b"], ["y"], attributes)], inputs, [value("y", None, a_type)])


def with_constant(op, shape, constant, attributes=None, dtype=FLOAT):
    """op(x, c) with c an initializer."""
    return model_of([(op, ["x", "c"], ["y"], attributes or {})], [value("x", shape, dtype)], [value("y", None, dtype)],
                    {"c": constant})  # fmt: skip


# --- bytes that are no model -------------------------------------------------------------------------------------


@case(1002)
def empty():
    return b""


@case(1002)
def plain_text():
    return b"this is not a model, whatever its name says\n" * 20


@case(1002)
def a_picture():
    return b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


@case(1002)
def compressed():
    return gzip.compress(small_network().SerializeToString())


@case(1002)
def zeros():
    return bytes(4096)


@case(1002)
def all_ones():
    return b"\xff" * 4096


def cut(numerator, denominator):
    def make():
        whole = small_network().SerializeToString()
        return whole[: len(whole) * numerator // denominator]

    make.__name__ = f"cut_at_{numerator}_of_{denominator}"
    return make


for part in ((1, 50), (1, 8), (1, 3), (1, 2), (3, 4), (99, 100)):
    case(1002)(cut(*part))


@case(1002)
def no_graph():
    return onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])


@case(1002, "opset")
def no_opset():
    model = unary("Relu")
    del model.opset_import[:]
    return model


# --- graphs that break a rule ------------------------------------------------------------------------------------


@case(1002, "first", "cycl")
def a_cycle():
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [2])], [value("b", [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@case(1002, "nowhere")
def an_input_that_nothing_defines():
    return model_of([("Add", ["x", "nowhere"], ["y"])], [value("x", [2])], [value("y", [2])])


@case(1002, "missing_output")
def an_output_that_nothing_defines():
    return model_of([("Relu", ["x"], ["y"])], [value("x", [2])], [value("missing_output", [2])])


@case(1002, "twice")
def a_value_defined_twice():
    nodes = [("Relu", ["x"], ["twice"]), ("Neg", ["x"], ["twice"])]
    return model_of(nodes, [value("x", [2])], [value("twice", [2])])


@case(1002, "x")
def an_input_listed_twice():
    return model_of([("Relu", ["x"], ["y"])], [value("x", [2]), value("x", [2])], [value("y", [2])])


@case(1003, "1 node")
def a_node_without_a_type():
    return model_of([("", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])


def with_tensor(**fields):
    tensor = TensorProto(name="c", data_type=FLOAT, dims=[2, 3], **fields)
    model = model_of([("Add", ["x", "c"], ["y"])], [value("x", [2, 3])], [value("y", [2, 3])])
    model.graph.initializer.append(tensor)
    return model


@case(1002, "c")
def an_initializer_with_too_few_bytes():
    return with_tensor(raw_data=bytes(20))


@case(1002, "c")
def an_initializer_with_too_many_bytes():
    return with_tensor(raw_data=bytes(28))


@case(1002, "c")
def an_initializer_with_too_few_values():
    return with_tensor(float_data=[1.0, 2.0])


@case(1002, "c")
def an_initializer_without_values():
    return with_tensor()


@case(1002, "c")
def an_initializer_with_a_negative_dimension():
    model = with_tensor(raw_data=bytes(24))
    model.graph.initializer[0].dims[:] = [-2, -3]
    return model


@case(1004, "Concat", "axis")
def a_required_attribute_is_missing():
    return binary("Concat", [2, 3], [2, 3])


@case(1002, "Conv", "strides")
def an_attribute_of_the_wrong_type():
    weight = np.zeros((1, 1, 1, 1), np.float32)
    return with_constant("Conv", [1, 1, 4, 4], weight, {"strides": 2.5})


@case(1004, "Add", "2 inputs")
def too_few_inputs():
    return unary("Add")


@case(1004, "Relu", "1 inputs")
def too_many_inputs():
    return binary("Relu", [2], [2])


# --- what is not supported ---------------------------------------------------------------------------------------


@case(1003, "FrobnicateTensor")
def an_unknown_operator():
    return unary("FrobnicateTensor")


@case(1003, "com.example", "Relu")
def an_unknown_domain():
    model = unary("Relu")
    model.graph.node[0].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return model


@case(1003, "Frobnicate", "Wobble", "2 nodes")
def several_unknown_operators_at_once():
    nodes = [("Frobnicate", ["x"], ["a"]), ("Wobble", ["a"], ["b"]), ("Frobnicate", ["b"], ["y"])]
    return model_of(nodes, [value("x", [2])], [value("y", [2])])


@case(1003, "999")
def an_opset_of_the_future():
    return unary("Relu", opset=999)


@case(1003, "is_test=0")
def a_form_for_training_of_the_past():
    x, row = helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("r", 1, [3])
    node = helper.make_node("BatchNormalization", ["x", "r", "r", "r", "r"], ["y"])
    graph = helper.make_graph([node], "g", [x, row], [helper.make_tensor_value_info("y", 1, [2, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)


@case(1003, "string")
def strings():
    return unary("Identity", dtype=TensorProto.STRING)


@case(1003, "complex64")
def complex_numbers():
    return unary("Identity", dtype=TensorProto.COMPLEX64)


@case(1003)
def a_sequence_as_input():
    sequence = helper.make_tensor_sequence_value_info("x", FLOAT, [2])
    return model_of([("SequenceLength", ["x"], ["y"])], [sequence], [value("y", [], INT64)])


@case(1003)
def a_sparse_initializer():
    model = model_of([("Add", ["x", "s"], ["y"])], [value("x", [4])], [value("y", [4])])
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "s_indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return model


# --- shapes and types that do not fit ----------------------------------------------------------------------------


@case(1004, "MatMul")
def inner_dimensions_differ():
    return binary("MatMul", [2, 3], [4, 5])


@case(1004, "Add")
def shapes_do_not_broadcast():
    return binary("Add", [2, 3], [2, 4])


@case(1004, "Add")
def types_differ():
    return binary("Add", [2], [2], FLOAT, INT64)


@case(1004, "Conv")
def channels_differ():
    return with_constant("Conv", [1, 3, 8, 8], np.zeros((4, 5, 3, 3), np.float32))


@case(1004, "Conv")
def the_filter_has_the_wrong_rank():
    return with_constant("Conv", [1, 3, 8, 8], np.zeros((4, 3, 3), np.float32))


@case(1004, "Conv")
def groups_do_not_divide_the_channels():
    return with_constant("Conv", [1, 3, 8, 8], np.zeros((4, 1, 3, 3), np.float32), {"group": 2})


@case(1004, "Conv")
def the_filter_is_larger_than_the_picture():
    return with_constant("Conv", [1, 1, 2, 2], np.zeros((1, 1, 5, 5), np.float32))


@case(1004, "MaxPool")
def the_window_is_larger_than_the_picture():
    return unary("MaxPool", (1, 1, 2, 2), kernel_shape=[5, 5])


@case(1004, "Reshape")
def reshape_to_another_size():
    return with_constant("Reshape", [2, 3], np.array([4, 2], np.int64))


@case(1004, "Reshape")
def reshape_with_two_open_dimensions():
    return with_constant("Reshape", [2, 3], np.array([-1, -1], np.int64))


@case(1004, "Reshape")
def reshape_to_a_negative_dimension():
    return with_constant("Reshape", [2, 3], np.array([-2, -3], np.int64))


@case(1004, "Concat")
def concat_of_different_widths():
    return binary("Concat", [2, 3], [2, 4], axis=0)


@case(1004, "Concat")
def concat_along_an_axis_that_is_not_there():
    return binary("Concat", [2, 3], [2, 3], axis=5)


@case(1004, "Transpose")
def a_permutation_with_a_repeated_axis():
    return unary("Transpose", perm=[0, 0])


@case(1004, "Transpose")
def a_permutation_of_the_wrong_length():
    return unary("Transpose", perm=[0, 1, 2])


@case(1003, "Gemm", "matrices")
def gemm_of_the_wrong_rank():
    return binary("Gemm", [2, 3, 4], [4, 5])


@case(1004, "Gemm")
def gemm_shapes_differ():
    return binary("Gemm", [2, 3], [4, 5])


@case(1004, "Squeeze")
def squeeze_of_a_long_dimension():
    return with_constant("Squeeze", [2, 3], np.array([1], np.int64))


@case(1004, "Unsqueeze")
def unsqueeze_twice_at_one_place():
    return with_constant("Unsqueeze", [2, 3], np.array([1, 1], np.int64))


@case(1004, "Softmax")
def softmax_along_an_axis_that_is_not_there():
    return unary("Softmax", axis=7)


@case(1004, "Flatten")
def flatten_at_an_axis_that_is_not_there():
    return unary("Flatten", axis=9)


@case(1004, "Gather")
def gather_by_floats():
    return binary("Gather", [4, 3], [2], FLOAT, FLOAT)


@case(1004, "Expand")
def expand_to_a_shape_that_does_not_fit():
    return with_constant("Expand", [2, 3], np.array([2, 4], np.int64))


@case(1004, "Split")
def split_sizes_that_do_not_add_up():
    nodes = [("Split", ["x", "sizes"], ["y", "z"], {"axis": 0})]
    sizes = {"sizes": np.array([2, 3], np.int64)}
    return model_of(nodes, [value("x", [4, 3])], [value("y", None), value("z", None)], sizes)


@case(1004, "Pad")
def pads_of_the_wrong_length():
    return with_constant("Pad", [2, 3], np.array([1, 1, 1], np.int64))


@case(1004, "BatchNormalization")
def batch_normalization_with_too_few_factors():
    few = np.ones(2, np.float32)
    nodes = [("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])]
    return model_of(nodes, [value("x", [1, 3, 4, 4])], [value("y", None)], {"s": few, "b": few, "m": few, "v": few})


@case(1002, "y", "int64")
def the_declared_output_type_is_another():
    return model_of([("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2], INT64)])


@case(1004, "typo", shapes={"typo": (2, 3)})
def a_shape_for_an_input_that_is_not_there():
    return unary("Relu")


@case(1004, "x", shapes={"x": (2, 3, 4)})
def a_shape_of_the_wrong_rank():
    return unary("Relu")


@case(1004, "Add_0", "dimension 1 of `x` from 3 to 5", shapes={"x": (2, 5)})
def a_shape_that_the_model_is_not_made_for():
    return with_constant("Add", [2, 3], np.ones((2, 3), np.float32))


@case(1004, "`x` cannot be open: it is 2", "Add_0", shapes={"x": ("batch", 3)})
def a_dimension_opened_that_the_model_is_not_made_for():
    return with_constant("Add", [2, 3], np.ones((2, 3), np.float32))


# --- sizes beyond the limits -------------------------------------------------------------------------------------


@case(1005)
def an_initializer_of_absurd_size():
    model = with_tensor(raw_data=bytes(24))
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    return model


@case(1005)
def an_input_of_absurd_size():
    return unary("Relu", (1 << 31, 1 << 31))


@case(1005)
def a_tensor_of_rank_100():
    return unary("Relu", [1] * 100)


@case(1005)
def a_constant_of_absurd_size():
    shape = {"c": np.array([1 << 20, 1 << 20, 1 << 20], np.int64)}
    return model_of([("ConstantOfShape", ["c"], ["y"])], [value("x", [1])], [value("y", None)], shape)


@case(1005)
def expand_to_absurd_size():
    return with_constant("Expand", [1], np.array([1 << 30, 1 << 30], np.int64))


@case(1004, "Tile", "more than memory can hold")
def tile_to_a_size_that_no_number_holds():
    return with_constant("Tile", [4, 4], np.array([1 << 62, 4], np.int64))


@case(1003, "DFT", "a length of")
def a_transform_of_absurd_length():
    return with_constant("DFT", [1, 16, 1], np.int64(1 << 62))


@case(1003, "DFT", "rank 0")
def an_axis_that_is_computed_of_a_number():
    inputs = [value("x", []), value("axis", [], INT64)]
    return model_of([("DFT", ["x", "", "axis"], ["y"], {"onesided": 1})], inputs, [value("y", None)], opset=20)


@case(1003, "GRU", "a bias of another rank")
def a_bias_without_directions():
    weights = {"w": np.ones((1, 15, 3), np.float32), "r": np.ones((1, 15, 5), np.float32), "b": np.ones(30, np.float32)}
    nodes = [("GRU", ["x", *weights], ["", "y"], {"hidden_size": 5})]
    return model_of(nodes, [value("x", [2, 3, 3])], [value("y", None)], weights)


@case(1003, "STFT", "frames of")
def frames_of_absurd_length():
    lengths = {"step": np.int64(1), "length": np.int64(1 << 62)}
    return model_of(
        [("STFT", ["x", "step", "", "length"], ["y"])], [value("x", [1, 16, 1])], [value("y", None)], lengths
    )


def with_functions(*functions):
    """Calls the first of functions {name: names that it calls one after the other}; "" is Relu."""
    made = []
    for name, calls in functions:
        nodes = [
            helper.make_node(c or "Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"], domain="my" if c else "")
            for i, c in enumerate(calls)
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
        made.append(helper.make_function("my", name, ["x"], [f"v{len(calls)}"], nodes, opsets))
    node = helper.make_node(functions[0][0], ["x"], ["y"], domain="my")
    graph = helper.make_graph([node], "g", [value("x", [2])], [value("y", [2])])
    return helper.make_model(graph, functions=made, opset_imports=opsets)


@case(1005, "nested")
def functions_that_call_each_other():
    return with_functions(("f", ["g"]), ("g", ["f"]))


@case(1005, "nodes")
def functions_that_double_forty_times():
    return with_functions(*[(f"f{i}", [f"f{i + 1}"] * 2) for i in range(40)], ("f40", [""]))


# -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, code, mentions, load_options", CASES)
def test_a_bad_model_is_refused(make, code, mentions, load_options):
    model = make()
    with pytest.raises(tw.Error) as caught:
        tw.compile(tw.load(model, **load_options))
    assert caught.value.code == f"TW{code}", str(caught.value)
    assert str(caught.value).startswith(f"TW{code}")
    for word in mentions:
        assert word.lower() in str(caught.value).lower()


def test_there_are_enough_cases():
    assert len(CASES) >= 60


def test_every_kind_of_damage_is_survived():
    """One flipped byte at many places: the model is refused, or it is still a model."""
    whole = bytearray(small_network().SerializeToString())
    refused = 0
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        try:
            tw.load(bytes(damaged))
        except tw.Error as error:
            assert error.code != "TW1999", f"byte {position}: {error}"
            refused += 1
    assert refused > 20
