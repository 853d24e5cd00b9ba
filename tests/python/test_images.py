"""ImageDecoder, and results of one's own operators whose sizes only the run knows."""

import io
import subprocess
import warnings

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.loader import load_model_tests
from PIL import Image

import tilewright as tw
from conftest import ROOT, model_of, value

UINT8 = TensorProto.UINT8
RNG = np.random.default_rng(2)


def decoding(pixel_format=None, behind=()):
    attributes = {} if pixel_format is None else {"pixel_format": pixel_format}
    return model_of(
        [("ImageDecoder", ["file"], ["pixels" if behind else "y"], attributes), *behind],
        [value("file", ["bytes"], UINT8)],
        [value("y", [None] * 3 if not behind else [None] * 4, TensorProto.FLOAT if behind else UINT8)],
        opset=20,
    )


def file_of(pixels, kind):
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, kind)
    return np.frombuffer(data.getvalue(), np.uint8)


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp", "webp", "tiff", "ppm", "jpeg2000"])
@pytest.mark.parametrize("pixel_format", [None, "RGB", "BGR", "Grayscale"])
def test_files_become_arrays_of_any_size(kind, pixel_format):
    executable = tw.compile(decoding(pixel_format))
    for shape in ((5, 7, 3), (32, 16, 3)):
        data = file_of(RNG.integers(0, 256, shape).astype(np.uint8), kind)
        (expected,) = onnx.reference.ReferenceEvaluator(decoding(pixel_format)).run(None, {"file": data})
        np.testing.assert_array_equal(executable.run({"file": data})["y"], expected)


def test_what_follows_works_on_that_size(tmp_path):
    """A picture as a network takes it: floats, channels first, a batch."""
    behind = [
        ("Cast", ["pixels"], ["f"], {"to": TensorProto.FLOAT}),
        ("Transpose", ["f"], ["t"], {"perm": [2, 0, 1]}),
        ("Unsqueeze", ["t", "zero"], ["y"]),
    ]
    model = decoding(behind=behind)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "zero"))
    pixels = RNG.integers(0, 256, (9, 4, 3)).astype(np.uint8)
    executable = tw.compile(model)
    executable.save(tmp_path / "m.twa")
    for each in (executable, tw.load_executable(tmp_path / "m.twa")):
        y = each.run({"file": file_of(pixels, "png")})["y"]
        np.testing.assert_array_equal(y, pixels.transpose(2, 0, 1)[None].astype(np.float32))


def test_a_file_that_is_none_ends_the_run():
    executable = tw.compile(decoding())
    whole = file_of(RNG.integers(0, 256, (30, 30, 3)).astype(np.uint8), "png")
    for wrong in (np.zeros(100, np.uint8), whole[: len(whole) // 2]):
        with pytest.raises(tw.Error, match="TW1102.*ImageDecoder"):
            executable.run({"file": wrong})
    with pytest.raises(tw.Error, match="(?s)TW1003.*pixel_format"):
        tw.load(decoding("CMYK"))


def test_images_of_onnx_suite():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if case.name.startswith("test_image_decoder_")]
    assert len(cases) == 9
    for case in cases:
        ((inputs, (expected,)),) = case.data_sets
        (y,) = tw.compile(case.model)(*inputs)
        apart = np.abs(y.astype(int) - expected.astype(int))
        assert y.shape == expected.shape and np.median(apart) <= 1, case.name  # decoders round otherwise


# --- of one's own ----------------------------------------------------------------------------------------------------


def positives(**options):
    return tw.Operator(
        "my",
        "Positives",
        types=lambda x: (tw.ArrayType("f32", (None,)), tw.ArrayType("i64", (None, len(x.shape)))),
        sizes=lambda x: [np.count_nonzero(x > 0)] * 2,
        function=lambda x: (x[x > 0], np.argwhere(x > 0)),
        **options,
    )


def using(op="Positives"):
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node(op, ["a"], ["found", "where"], name="positives", domain="my"),
            helper.make_node("Exp", ["found"], ["y"]),
        ],
        "g",
        [value("x", ["n", 3])],
        [value("y", [None]), value("where", [None, None], TensorProto.INT64)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_sizes_that_a_function_says_in_the_run():
    executable = tw.compile(using(), operators=[positives()])
    for rows in (1, 4, 9):
        x = RNG.standard_normal((rows, 3)).astype(np.float32)
        results = executable.run({"x": x})
        np.testing.assert_allclose(results["y"], np.exp(x[x > 0]), rtol=1e-5)
        np.testing.assert_array_equal(results["where"], np.argwhere(x > 0))
    assert executable.run({"x": np.full((2, 3), -1, np.float32)})["y"].shape == (0,)


def test_sizes_that_are_wrong():
    def with_sizes(sizes):
        operator = tw.Operator("my", "Positives", types=positives().types, sizes=sizes, function=positives().function)
        return tw.compile(using(), operators=[operator])

    x = np.ones((2, 3), np.float32)
    for sizes, message in (
        (lambda x: [1], "1 numbers instead of 2"),
        (lambda x: [2, 2], r"shape \(6,\) instead of \(2,\)"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ):
        with pytest.raises(tw.Error, match=f"(?s)TW1102.*{message}"):
            with_sizes(sizes).run({"x": x})
    with pytest.raises(tw.Error, match="TW1101"):
        with_sizes(lambda x: [-1, -1]).run({"x": x})
    with pytest.raises(tw.Error, match="(?s)TW1003.*no sizes="):
        tw.compile(using(), operators=[tw.Operator("my", "Positives", types=positives().types, function=len)])
    for wrong in ({"expression": len, "sizes": len}, {"types": len, "function": len, "sizes": "name"}):
        with pytest.raises(tw.Error, match="TW1003.*sizes="):
            tw.Operator("my", "F", **wrong)


def test_sizes_from_a_library(tmp_path):
    (tmp_path / "own.c").write_text(
        """
        #include "runtime/tilewright.h"
        static int64_t count(const tw_argument* x) {
          int64_t n = 0;
          for (size_t i = 0; i < x->type.bytes / 4; ++i) n += ((const float*)x->data)[i] > 0;
          return n;
        }
        const char* positive_sizes(const char* a, int32_t n, const tw_argument* in, int32_t m, const tw_argument* out) {
          *(int64_t*)out[0].data = count(in);
          return 0;
        }
        const char* positives(const char* a, int32_t n, const tw_argument* in, int32_t m, const tw_argument* out) {
          float* y = out[0].data;
          for (size_t i = 0; i < in[0].type.bytes / 4; ++i)
            if (((const float*)in[0].data)[i] > 0) *y++ = ((const float*)in[0].data)[i];
          return 0;
        }
        """
    )
    library = tmp_path / "libown.so"
    command = ["clang-22", "-O1", "-shared", "-fPIC", f"-I{ROOT}", "-o", library, tmp_path / "own.c"]
    subprocess.run(command, check=True)
    own = tw.Operator(
        "my", "Positives", types=lambda x: tw.ArrayType("f32", (None,)), library=library, symbol="positives",
        sizes="positive_sizes",
    )  # fmt: skip
    model = using()
    del model.graph.node[1].output[1], model.graph.output[1]
    executable = tw.compile(model, operators=[own])
    executable.save(tmp_path / "m.twa")
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    for each in (executable, tw.load_executable(tmp_path / "m.twa")):
        np.testing.assert_allclose(each.run({"x": x})["y"], np.exp(x[x > 0]), rtol=1e-5)
