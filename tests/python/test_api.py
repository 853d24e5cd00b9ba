"""The Python interface: loading, compiling, running, saving."""

import os
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tilewright as tw
from conftest import model_of, reference, small_network, value
from tilewright.lists import Type


def test_a_model_loads_from_a_path_from_bytes_and_from_a_proto(network, tmp_path, x):
    path = tmp_path / "model.onnx"
    onnx.save(network, path)
    (expected,) = reference(network, {"x": x})
    for source in (path, str(path), network.SerializeToString(), network):
        outputs = tw.compile(tw.load(source)).run({"x": x})
        assert list(outputs) == ["y"]
        np.testing.assert_allclose(outputs["y"], expected, atol=1e-5)


def test_signatures_are_shown(network, executable):
    model = tw.load(network)
    assert model.inputs == executable.inputs == {"x": "f32[1,3,16,16]"}
    assert model.outputs == executable.outputs == {"y": "f32[1,10]"}
    assert "f32[1,3,16,16]" in repr(model) and "f32[1,3,16,16]" in repr(executable)


def test_explain_names_operators_and_size(network):
    text = tw.load(network).explain()
    for word in ("Conv", "Softmax", "x", "y"):
        assert word in text


def test_calling_takes_and_gives_lists(executable, network, x):
    (output,) = executable(x)
    np.testing.assert_allclose(output, reference(network, {"x": x})[0], atol=1e-5)


def test_outputs_come_in_the_order_of_the_graph():
    names = ["zebra", "apple", "mango"]
    nodes = [("Relu", ["x"], ["mango"]), ("Neg", ["x"], ["apple"]), ("Abs", ["x"], ["zebra"])]
    model = model_of(nodes, [value("x", [4])], [value(name, [4]) for name in names])
    x = np.array([-1, 2, -3, 4], np.float32)
    outputs = tw.compile(tw.load(model)).run({"x": x})
    assert list(outputs) == names
    np.testing.assert_array_equal(outputs["zebra"], np.abs(x))
    np.testing.assert_array_equal(outputs["apple"], -x)
    np.testing.assert_array_equal(outputs["mango"], np.maximum(x, 0))


def test_shapes_fix_open_dimensions():
    nodes = [("Relu", ["x"], ["y"])]
    model = model_of(nodes, [value("x", ["batch", 3])], [value("y", ["batch", 3])])
    executable = tw.compile(tw.load(model, shapes={"x": (5, 3)}))
    assert executable.inputs == {"x": "f32[5,3]"}
    assert executable(np.ones((5, 3), np.float32))[0].shape == (5, 3)


def test_inputs_may_be_strided_and_unaligned(executable, network):
    rng = np.random.default_rng(2)
    whole = rng.standard_normal((1, 16, 16, 3)).astype(np.float32)
    strided = whole.transpose(0, 3, 1, 2)
    (expected,) = reference(network, {"x": strided})
    np.testing.assert_allclose(executable(strided)[0], expected, atol=1e-5)
    storage = np.zeros(3 * 16 * 16 * 4 + 4, np.uint8)
    unaligned = storage[4:].view(np.float32).reshape(1, 3, 16, 16)
    unaligned[:] = strided
    np.testing.assert_allclose(executable(unaligned)[0], expected, atol=1e-5)


def test_inputs_may_be_anything_that_speaks_dlpack(executable, x):
    class Wrapped:
        """Only the protocol, nothing of an array."""

        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    np.testing.assert_array_equal(executable(Wrapped())[0], executable(x)[0])
    assert np.from_dlpack(executable(x)[0]).shape == (1, 10)


def test_outputs_are_independent_of_later_runs(executable, x):
    (first,) = executable(x)
    kept = first.copy()
    executable(-x)
    np.testing.assert_array_equal(first, kept)


def test_saving_and_loading_gives_the_same_answer(executable, x, tmp_path):
    path = tmp_path / "model.twa"
    executable.save(path)
    again = tw.load_executable(path)
    assert again.inputs == executable.inputs and again.outputs == executable.outputs
    np.testing.assert_array_equal(again(x)[0], executable(x)[0])


def test_the_answer_does_not_depend_on_the_number_of_threads(network, x):
    answers = [tw.compile(tw.load(network), threads=n)(x)[0] for n in (1, 2, 3, 7)]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_threads_can_be_changed(network):
    executable = tw.compile(tw.load(network), threads=1)
    assert executable.threads == 1
    executable.threads = 2
    assert executable.threads == 2


def test_threads_may_share_an_executable(executable, x):
    inputs = [x * factor for factor in (0.5, 1, 2, 3)]
    expected = [executable(each)[0] for each in inputs]
    wrong = []

    def work(which):
        for _ in range(50):
            if not np.array_equal(executable(inputs[which])[0], expected[which]):
                wrong.append(which)

    workers = [threading.Thread(target=work, args=(which,)) for which in range(len(inputs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_the_interpreter_is_free_while_a_model_runs():
    """Another thread makes progress during a run that takes long."""
    n = 1024
    rng = np.random.default_rng(0)
    weights = {f"w{i}": (rng.standard_normal((n, n)) / n**0.5).astype(np.float32) for i in range(8)}
    names = ["x", *(f"h{i}" for i in range(7)), "y"]
    nodes = [("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(8)]
    executable = tw.compile(tw.load(model_of(nodes, [value("x", [n, n])], [value("y", [n, n])], weights)), threads=1)
    x = rng.standard_normal((n, n)).astype(np.float32)
    running, ticks_while_running = threading.Event(), []

    def tick():
        running.wait()
        while running.is_set():
            ticks_while_running.append(1)

    ticker = threading.Thread(target=tick)
    ticker.start()
    running.set()
    executable(x)
    running.clear()
    ticker.join()
    assert len(ticks_while_running) > 1000


def test_profile_has_a_row_for_each_kernel(executable, x):
    profile = executable.profile({"x": x}, repetitions=3)
    assert len(profile.kernels) == len(executable.describe()["steps"]) > 0
    assert all(kernel.seconds > 0 for kernel in profile.kernels)
    assert str(profile).count("\n") == len(profile.kernels) + 1


@pytest.mark.parametrize("dtype", ["float64", "int8", "int32", "int64", "uint8", "bool", "float16"])
def test_every_element_type_goes_in_and_out(dtype):
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of([("Identity", ["x"], ["y"])], [value("x", [3, 2], kind)], [value("y", [3, 2], kind)])
    x = np.arange(6).reshape(3, 2).astype(dtype)
    (y,) = tw.compile(tw.load(model))(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_scalars_and_empty_tensors():
    model = model_of([("Add", ["a", "a"], ["y"])], [value("a", [])], [value("y", [])])
    assert tw.compile(tw.load(model))(np.float32(2))[0] == 4
    model = model_of([("Relu", ["a"], ["y"])], [value("a", [0, 3])], [value("y", [0, 3])])
    assert tw.compile(tw.load(model))(np.zeros((0, 3), np.float32))[0].shape == (0, 3)


def test_compiling_a_second_model_leaves_the_first_alone(executable, x):
    before = executable(x)[0]
    other = tw.compile(tw.load(small_network(seed=5)))
    assert not np.array_equal(other(x)[0], before)
    np.testing.assert_array_equal(executable(x)[0], before)


def test_run_into_arrays_of_the_caller(executable, x):
    y = np.full((1, 10), np.nan, np.float32)
    result = executable.run({"x": x}, out={"y": y})
    assert result["y"] is y
    np.testing.assert_array_equal(y, executable.run({"x": x})["y"])


@pytest.mark.parametrize(
    "out",
    [
        {},
        {"z": np.empty((1, 10), np.float32)},
        {"y": [[0.0] * 10]},
        {"y": np.empty((1, 20), np.float32)[:, ::2]},
        {"y": np.empty((1, 9), np.float32)},
        {"y": np.empty((1, 10), np.float64)},
    ],
)
def test_arrays_that_cannot_take_the_outputs(executable, x, out):
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"x": x}, out=out)


def test_outputs_share_no_memory_with_inputs(executable, x):
    with pytest.raises(tw.Error, match="shares memory"):
        executable.run({"x": x}, out={"y": x.reshape(-1)[:10].reshape(1, 10)})


def test_large_results_that_are_held_stay_as_they_are():
    """The storage of a large result serves later runs only after the caller has dropped it."""
    model = model_of([("Relu", ["x"], ["y"])], [value("x", [1 << 19])], [value("y", [1 << 19])])
    executable = tw.compile(tw.load(model.SerializeToString()))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(1 << 19).astype(np.float32) for _ in range(3)]
    held = [executable.run({"x": x})["y"] for x in inputs]
    parts = [y[::7] for y in held]
    del held
    executable.run({"x": -np.ones(1 << 19, np.float32)})
    for x, part in zip(inputs, parts, strict=True):
        np.testing.assert_array_equal(part, np.maximum(x, 0)[::7])
    dropped = executable.run({"x": inputs[0]})["y"].ctypes.data
    assert executable.run({"x": inputs[1]})["y"].ctypes.data == dropped


def test_types_have_their_parts():
    model = model_of([("Relu", ["x"], ["y"]), ("Shape", ["x"], ["s"])], [value("x", ["n", 3])],
                     [value("y", ["n", 3]), value("s", [2], TensorProto.INT64)])  # fmt: skip
    loaded = tw.load(model)
    for each in (loaded, tw.compile(loaded)):
        assert each.inputs == {"x": "f32[n,3]"} and each.inputs["x"].dtype == "f32"
        assert each.inputs["x"].shape == ("n", 3)
        assert (each.outputs["s"].dtype, each.outputs["s"].shape) == ("i64", (2,))
    assert Type("f32[max(min(n,8),1),3]").shape == ("max(min(n,8),1)", 3)
    with pytest.raises(tw.Error, match="TW1101.*no tensor"):
        Type("sequence(f32[1])").shape  # noqa: B018
    scalar = tw.load(model_of([("Relu", ["x"], ["y"])], [value("x", [])], [value("y", [])]))
    assert scalar.inputs["x"].shape == ()


def test_signals_stay_the_callers(tmp_path):
    """LLVM's linker takes them, to remove its files should one end the process."""
    script = """if True:
        import sys
        def caught():
            lines = [line.split() for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn"))]
            return [int(mask, 16) & 0x7FFFFFFF for _, mask in lines]  # without those of threads
        import tilewright as tw
        model = tw.load(sys.argv[1])
        before = caught()
        tw.compile(model)
        print(before == caught())
    """
    onnx.save(small_network(), tmp_path / "m.onnx")
    command = [sys.executable, "-c", script, tmp_path / "m.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TW_CACHE": "off"})
    assert done.stdout == "True\n", done.stdout + done.stderr
