"""What reads images between their elements, matrices' determinants and Fourier transforms, at sizes that are open."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw

ort = pytest.importorskip("onnxruntime")
rng = np.random.default_rng(0)


def array(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def floats(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def numbers(name, values):
    return helper.make_tensor(name, TensorProto.INT64, np.shape(values), np.ravel(values))


def model_of(nodes, inputs, constants=(), opset=20):
    graph = helper.make_graph(nodes, "g", inputs, [floats("y", None)], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def require_agreement(model, all_feeds, by=None, tolerance=1e-4):
    """`by`: what says what is right; ONNX Runtime unless it is given."""
    executable = tw.compile(tw.load(model.SerializeToString()))
    if by is None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(model.SerializeToString(), options)
        by = lambda feeds: session.run(None, feeds)[0]  # noqa: E731
    for feeds in all_feeds:
        want, (have,) = by(feeds), executable.run(feeds).values()
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance * max(1, np.abs(want).max(initial=0)))


def by_reference(model):
    evaluator = ReferenceEvaluator(model)
    return lambda feeds: evaluator.run(None, feeds)[0]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dims", [2, 3])
def test_grids(mode, dims):
    if (mode, dims) == ("cubic", 3):
        pytest.skip("ONNX Runtime has none")
    inputs = [floats("x", ["n", "c", *"hwd"[:dims]]), floats("grid", ["n", *"ijk"[:dims], dims])]
    for padding, align in itertools.product(("zeros", "border", "reflection"), (0, 1)):
        node = helper.make_node(
            "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=align
        )
        feeds = [
            {"x": array(n, 3, *size), "grid": 1.2 * array(n, *out, dims)}
            for n, size, out in [(2, (4, 5, 6)[:dims], (3, 1, 2)[:dims]), (1, (1, 3, 2)[:dims], (2, 5, 1)[:dims])]
        ]
        require_agreement(model_of([node], inputs), feeds)


def test_a_grid_of_what_is_no_number_reads_nothing_foreign():
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="linear", padding_mode="border")
    model = model_of([node], [floats("x", [1, 1, 4, 4]), floats("grid", [1, 1, 4, 2])])
    grid = np.array([[np.nan, 0], [np.inf, 0], [-np.inf, 1e30], [-1e30, np.nan]], np.float32).reshape(1, 1, 4, 2)
    (y,) = tw.compile(tw.load(model.SerializeToString())).run({"x": array(1, 1, 4, 4), "grid": grid}).values()
    assert y.shape == (1, 1, 1, 4)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grids_of_the_sizes_of_the_run(align):
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=align),
        helper.make_node("GridSample", ["x", "grid"], ["y"], align_corners=align),
    ]
    model = model_of(nodes, [floats("x", ["n", "c", "h", "w"]), floats("theta", ["n", 2, 3])])
    feeds = [{"x": array(2, 3, *size), "theta": array(2, 2, 3)} for size in ((4, 5), (7, 3), (2, 2))]
    require_agreement(model, feeds)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
def test_boxes(mode, samples):
    images = helper.make_tensor_value_info("images", TensorProto.INT64, ["k"])
    for coordinates in ("half_pixel", "output_half_pixel"):
        node = helper.make_node(
            "RoiAlign",
            ["x", "boxes", "images"],
            ["y"],
            mode=mode,
            sampling_ratio=samples,
            output_height=3,
            output_width=4,
            spatial_scale=0.5,
            coordinate_transformation_mode=coordinates,
        )
        model = model_of([node], [floats("x", ["n", "c", "h", "w"]), floats("boxes", ["k", 4]), images], opset=16)
        feeds = []
        for count, size in ((5, (9, 11)), (1, (14, 6))):
            corner = 10 * np.abs(array(count, 2)) - 3
            boxes = np.concatenate([corner, corner + 1 + 10 * np.abs(array(count, 2))], 1)
            feeds.append({"x": array(2, 3, *size), "boxes": boxes, "images": rng.integers(0, 2, count)})
        require_agreement(model, feeds)


@pytest.mark.parametrize("strides, dilations, pads", [([1, 1], [1, 1], [0] * 4), ([2, 1], [1, 2], [1, 0, 2, 1])])
def test_the_image_of_columns(strides, dilations, pads):
    kernel, image = [2, 3], [7, 8]
    blocks = [(image[d] + pads[d] + pads[2 + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1 for d in (0, 1)]
    node = helper.make_node("Col2Im", ["x", "image", "kernel"], ["y"], strides=strides, dilations=dilations, pads=pads)
    constants = [numbers("image", image), numbers("kernel", kernel)]
    model = model_of([node], [floats("x", ["n", 12, int(np.prod(blocks))])], constants)
    require_agreement(model, [{"x": array(n, 12, int(np.prod(blocks)))} for n in (1, 3)], by_reference(model))


def list_of(name, length):
    return helper.make_tensor_value_info(name, TensorProto.INT64, [length])


@pytest.mark.parametrize("strides, dilations, pads", [([1, 1], [1, 1], [0] * 4), ([2, 1], [1, 2], [1, 0, 2, 1])])
def test_the_image_of_columns_in_windows_of_a_run(strides, dilations, pads):
    node = helper.make_node("Col2Im", ["x", "image", "kernel"], ["y"], strides=strides, dilations=dilations, pads=pads)
    model = model_of([node], [floats("x", ["n", 12, "m"]), list_of("image", 2), list_of("kernel", 2)])

    def feeds(kernel, image):
        room = [image[d] + pads[d] + pads[2 + d] - dilations[d] * (kernel[d] - 1) - 1 for d in (0, 1)]
        blocks = [room[d] // strides[d] + 1 for d in (0, 1)]
        return {"x": array(2, 12, int(np.prod(blocks))), "image": np.array(image), "kernel": np.array(kernel)}

    cases = [feeds(*sizes) for sizes in (([2, 3], [7, 8]), ([1, 1], [3, 4]), ([4, 3], [6, 9]), ([3, 1], [3, 2]))]
    require_agreement(model, cases, by_reference(model))
    executable = tw.compile(tw.load(model.SerializeToString()))
    assert len(executable.to_bytes()) < 500_000, "conditions of several loops do not multiply the copies of a tile"
    with pytest.raises(tw.Error, match="TW1101.*the one is 10, the other 12"):
        executable.run(feeds([1, 5], [7, 8]))
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run(cases[0] | {"kernel": np.array([0, 3])})
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run(cases[0] | {"kernel": np.array([12, 1])})


def test_windows_of_no_size_or_of_huge_ones_are_refused():
    node = helper.make_node("Col2Im", ["x", "image", "kernel"], ["y"])
    for extent in (0, -1, 2**62):
        constants = [numbers("image", [7, 8]), numbers("kernel", [extent, 3])]
        with pytest.raises(tw.Error, match="kernel is at least 1"):
            tw.load(model_of([node], [floats("x", ["n", 12, "m"])], constants).SerializeToString())


def test_determinants():
    model = model_of([helper.make_node("Det", ["x"], ["y"])], [floats("x", ["n", "m", "m"])])
    feeds = [{"x": array(n, m, m)} for n, m in ((3, 1), (2, 2), (1, 5))]
    feeds.append({"x": np.array([[[0, 1], [1, 0]], [[1, 2], [2, 4]]], np.float32)})
    require_agreement(model, feeds, lambda feeds: np.linalg.det(feeds["x"]))


def fourier(x, inverse, onesided):
    z = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(z, axis=1)[..., None]
    y = (np.fft.ifft if inverse else np.fft.fft)(z, axis=1)
    y = y[:, : y.shape[1] // 2 + 1] if onesided else y
    return np.stack([y.real, y.imag], -1)


@pytest.mark.parametrize("length", [1, 2, 7, 100, 600, 1024, "m"])
def test_fourier_transforms(length):
    for parts, inverse, onesided in itertools.product((1, 2), (0, 1), (0, 1)):
        if inverse and onesided and (parts == 1 or length == 1):
            continue
        node = helper.make_node("DFT", ["x"], ["y"], inverse=inverse, onesided=onesided)
        model = model_of([node], [floats("x", ["n", length, parts])])
        lengths = (2, 5, 16) if length == "m" else (length,)
        require_agreement(
            model,
            [{"x": array(2, n, parts)} for n in lengths],
            lambda feeds, inverse=inverse, onesided=onesided: fourier(feeds["x"], inverse, onesided),
        )


@pytest.mark.parametrize("axis", [1, 2, -2])
@pytest.mark.parametrize("length", [5, 20, 600])
def test_fourier_transforms_of_another_length(axis, length):
    constants = [numbers("length", length), numbers("axis", axis)]
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"], onesided=1)
    model = model_of([node], [floats("x", ["n", 12, "m", 1])], constants)
    require_agreement(model, [{"x": array(2, 12, m, 1)} for m in (3, 9)], by_reference(model))


@pytest.mark.parametrize("length", [None, 5, 20])
def test_fourier_transforms_along_an_axis_of_a_run(length):
    axis = helper.make_tensor_value_info("axis", TensorProto.INT64, [])
    for parts, inverse, onesided in [(1, 0, 0), (2, 0, 0), (2, 1, 0), (1, 0, 1), (2, 1, 1)]:
        if inverse and onesided and length:
            continue  # the reference evaluator takes it for another length
        node = helper.make_node(
            "DFT", ["x", "length" if length else "", "axis"], ["y"], inverse=inverse, onesided=onesided
        )
        constants = [numbers("length", length)] if length else []
        model = model_of([node], [floats("x", ["n", 6, "m", parts]), axis], constants)
        feeds = [{"x": array(3, 6, 10, parts), "axis": np.array(k)} for k in (0, 1, 2, -2, -4)]
        require_agreement(model, feeds, by_reference(model))
        executable = tw.compile(tw.load(model.SerializeToString()))
        for k in (-1, 3, 4):
            with pytest.raises(tw.Error, match="TW1101"):
                executable.run({"x": array(3, 6, 10, parts), "axis": np.array(k)})


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", ["window", ""])
def test_short_fourier_transforms(onesided, window):
    constants = [numbers("step", 8), numbers("length", 16)]
    constants.append(helper.make_tensor("window", TensorProto.FLOAT, [16], np.hanning(16)))
    node = helper.make_node("STFT", ["x", "step", window, "length"], ["y"], onesided=onesided)
    model = model_of([node], [floats("x", ["n", "m", 1])], constants, opset=17)
    require_agreement(model, [{"x": array(2, m, 1)} for m in (64, 41, 16)])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_smoothed_resizing_of_open_sizes(mode, policy):
    node = helper.make_node(
        "Resize", ["x", "", "", "size"], ["y"], mode=mode, antialias=1, keep_aspect_ratio_policy=policy, axes=[2, 3]
    )
    model = model_of([node], [floats("x", ["n", 2, "h", "w"])], [numbers("size", [7, 9])], opset=18)
    require_agreement(model, [{"x": array(1, 2, *size)} for size in ((20, 31), (5, 6), (14, 9))], by_reference(model))
