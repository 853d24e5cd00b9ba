"""Mistakes beyond the model: inputs of a run, artifacts, targets, options, files, external data."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tilewright as tw
from conftest import FLOAT, model_of, small_network, value


def raises(code: int, *mentions: str):
    """The error has this code and names these words."""
    pattern = rf"(?is)^TW{code}" + "".join(f"(?=.*{re.escape(word)})" for word in mentions)
    return pytest.raises(tw.Error, match=pattern)


# --- a run's inputs ----------------------------------------------------------------------------------------------


def test_a_missing_input(executable):
    with raises(1101, "'x'", "missing"):
        executable.run({})


def test_an_unknown_input(executable, x):
    with raises(1101, "typo"):
        executable.run({"x": x, "typo": x})


@pytest.mark.parametrize("shape", [(1, 3, 16), (1, 3, 16, 17), (2, 3, 16, 16), (3, 16, 16), (), (0,)])
def test_a_wrong_shape(executable, shape):
    with raises(1101, "x"):
        executable.run({"x": np.zeros(shape, np.float32)})


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16", "bool"])
def test_a_wrong_type(executable, x, dtype):
    with raises(1101, "x", "f32"):
        executable.run({"x": x.astype(dtype)})


@pytest.mark.parametrize("inputs", [[np.ones(1, np.float32)], np.ones(1, np.float32)], ids=["list", "array"])
def test_inputs_without_names(executable, inputs):
    with raises(1101):
        executable.run(inputs)


@pytest.mark.parametrize("bad", ["text", None, object(), np.array(["a"]), 1j], ids=lambda value: type(value).__name__)
def test_what_is_no_array(executable, bad):
    with raises(1101):
        executable.run({"x": bad})


def test_a_big_endian_array(executable, x):
    with raises(1101):
        executable.run({"x": x.astype(">f4")})


def test_too_many_and_too_few_positional_inputs(executable, x):
    with raises(1101, "2 inputs"):
        executable(x, x)
    with raises(1101, "0 inputs"):
        executable()


def test_the_executable_still_works_after_mistakes(executable, x):
    before = executable(x)[0]
    with raises(1101):
        executable.run({"x": x[:, :2]})
    np.testing.assert_array_equal(executable(x)[0], before)


# --- artifacts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def artifact(executable, tmp_path):
    path = tmp_path / "model.twa"
    executable.save(path)
    return path


def test_an_artifact_that_is_not_there(tmp_path):
    with raises(1001, "nothing.twa"):
        tw.load_executable(tmp_path / "nothing.twa")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x7fELF", bytes(100_000), b"\x7fELF" + bytes(100_000)], ids=len)
def test_a_file_that_is_no_artifact(tmp_path, content):
    path = tmp_path / "wrong.twa"
    path.write_bytes(content)
    with raises(1201, "wrong.twa"):
        tw.load_executable(path)


def test_an_ordinary_shared_object(tmp_path):
    path = tmp_path / "library.twa"
    shutil.copy(tw._core.__file__, path)
    with raises(1201):
        tw.load_executable(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_artifact(artifact, share):
    whole = artifact.read_bytes()
    artifact.write_bytes(whole[: int(len(whole) * share)])
    with raises(1201):
        tw.load_executable(artifact)


def test_an_artifact_with_something_appended(artifact):
    artifact.write_bytes(artifact.read_bytes() + b"more")
    with raises(1201):
        tw.load_executable(artifact)


def test_every_flipped_byte_of_an_artifact_is_noticed(artifact):
    """Loading notices damage of code and plan; `inspect` also that of the constants."""
    whole = artifact.read_bytes()
    for position in np.linspace(0, len(whole) - 1, 120).astype(int):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        artifact.write_bytes(damaged)
        with pytest.raises(tw.Error) as caught:
            tw._core.inspect_artifact(str(artifact))
        assert caught.value.code in ("TW1201", "TW1202"), position


def test_an_artifact_for_another_machine(network, tmp_path):
    path = tmp_path / "board.twa"
    tw.compile(tw.load(network), target="aarch64").save(path)
    with raises(1202, "aarch64"):
        tw.load_executable(path)


def test_running_what_was_compiled_for_another_machine(network, x):
    board = tw.compile(tw.load(network), target="aarch64")
    with raises(1202, "aarch64"):
        board.run({"x": x})


def test_saving_where_nothing_can_be_written(executable, tmp_path):
    with raises(1001):
        executable.save(tmp_path / "no" / "such" / "folder" / "model.twa")


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["", "z80", "x86:avx1024", "cpu:", "cuda:sm_1", "rpi99", "x86;rm -rf", "x" * 10_000])
def test_an_unknown_target(network, target):
    with raises(1301):
        tw.compile(tw.load(network), target=target)


@pytest.mark.parametrize("threads", [0, -1, 10**9, 2.5, "two", True])
def test_a_wrong_number_of_threads(network, threads):
    with raises(1301, "threads"):
        tw.compile(tw.load(network), threads=threads)


@pytest.mark.parametrize("precision", ["f64", "int8", "nonsense"])
def test_a_precision_that_is_not_there(network, precision):
    with raises(1003, precision):
        tw.compile(tw.load(network), precision=precision)


def test_a_database_that_is_not_there(network, tmp_path):
    with raises(1001, "tune.db"):
        tw.compile(tw.load(network), db=tmp_path / "tune.db")


def test_something_that_is_no_model():
    with pytest.raises(TypeError, match="int"):
        tw.load(42)


# --- files -------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_there(tmp_path):
    with raises(1001, "nothing.onnx"):
        tw.load(tmp_path / "nothing.onnx")


def test_a_folder(tmp_path):
    with raises(1001):
        tw.load(tmp_path)


# --- external data -----------------------------------------------------------------------------------------------


def with_external_weights(folder, location="weights.bin", offset=None, length=None, content=bytes(24)):
    model = model_of([("Add", ["x", "w"], ["y"])], [value("x", [2, 3])], [value("y", [2, 3])])
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", location), ("offset", offset), ("length", length)):
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    model.graph.initializer.append(tensor)
    folder.mkdir(exist_ok=True)
    if content is not None and "/" not in location:
        (folder / location).write_bytes(content)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def test_external_weights_beside_the_model_are_read(tmp_path):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = with_external_weights(tmp_path, offset=8, length=24, content=bytes(8) + weights.tobytes())
    np.testing.assert_array_equal(tw.compile(tw.load(path))(np.ones((2, 3), np.float32))[0], weights + 1)


@pytest.mark.parametrize("offset", [0, 4, 4097])
def test_large_external_weights_stay_in_their_file_until_they_are_packed(offset, tmp_path):
    """Also where they begin at no page, or at no element."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((700, 800), np.float32)
    model = model_of([("MatMul", ["x", "w"], ["y"])], [value("x", [3, 700])], [value("y", [3, 800])])
    tensor = TensorProto(name="w", data_type=FLOAT, dims=weights.shape, data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", "weights.bin"), ("offset", offset), ("length", weights.nbytes)):
        tensor.external_data.add(key=key, value=str(entry))
    model.graph.initializer.append(tensor)
    (tmp_path / "weights.bin").write_bytes(bytes(offset) + weights.tobytes())
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    executable = tw.compile(tw.load(tmp_path / "model.onnx"))
    (tmp_path / "weights.bin").unlink()
    x = rng.standard_normal((3, 700), np.float32)
    np.testing.assert_allclose(executable(x)[0], x @ weights, rtol=1e-4, atol=1e-3)


PEAK_MEMORY = """
import sys, tilewright as tw
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
tw.compile(tw.load(sys.argv[2]))
before = peak()
tw.compile(tw.load(sys.argv[1]))
print(peak() - before)
"""


def test_weights_are_in_memory_once(tmp_path):
    """To load and compile takes the packed weights and little more than one tensor of the model's."""
    size, count = 2048, 12
    nodes = [("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    model = model_of(nodes, [value("x0", [1, size])], [value(f"x{count}", [1, size])])
    with open(tmp_path / "weights.bin", "wb") as file:
        for i in range(count):
            tensor = TensorProto(name=f"w{i}", data_type=FLOAT, dims=[size, size], data_location=TensorProto.EXTERNAL)
            for key, entry in (("location", "weights.bin"), ("offset", file.tell())):
                tensor.external_data.add(key=key, value=str(entry))
            model.graph.initializer.append(tensor)
            file.write(np.full((size, size), i + 1, np.float32).tobytes())
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    small = small_network().SerializeToString()
    (tmp_path / "small.onnx").write_bytes(small)
    command = [sys.executable, "-c", PEAK_MEMORY, str(tmp_path / "model.onnx"), str(tmp_path / "small.onnx")]
    grown = 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    weights = 4 * size * size * count
    assert grown < 1.6 * weights


@pytest.mark.parametrize(
    "options",
    [
        {"content": None},
        {"content": bytes(20)},
        {"offset": 100},
        {"offset": 4},
        {"length": 20},
        {"length": 1 << 40},
        {"offset": -4},
        {"length": -24},
        {"offset": "many"},
        {"offset": (1 << 64) - 8},
        {"location": ""},
        {"location": "../secret"},
        {"location": "/etc/passwd"},
        {"location": "sub/../../secret"},
    ],
    ids=str,
)
def test_external_weights_that_are_not_what_they_should_be(tmp_path, options):
    (tmp_path / "secret").write_bytes(bytes(1000))
    content = None if options.get("location") == "" else bytes(24)
    path = with_external_weights(tmp_path / "model", **{"content": content, **options})
    with raises(1006, "w"):
        tw.load(path)


def test_external_weights_behind_a_symlink_out_of_the_folder(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(24))
    path = with_external_weights(tmp_path / "model", content=None)
    os.symlink(tmp_path / "secret", tmp_path / "model" / "weights.bin")
    with raises(1006):
        tw.load(path)


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "linked folder", "cut name"])
def test_external_weights_that_are_no_file_of_the_folder(kind, tmp_path):
    """None is waited for, or read."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "w").write_bytes(bytes(24))
    location = {"linked folder": "sub/w", "cut name": "weights.bin\0x"}.get(kind, "weights.bin")
    path = with_external_weights(tmp_path / "model", location=location, content=None)
    file = tmp_path / "model" / "weights.bin"
    {
        "folder": file.mkdir,
        "pipe": lambda: os.mkfifo(file),
        "device": lambda: file.symlink_to("/dev/zero"),
        "linked folder": lambda: (tmp_path / "model" / "sub").symlink_to(tmp_path / "outside"),
        "cut name": lambda: file.write_bytes(bytes(24)),
    }[kind]()
    with raises(1006, "w"):
        tw.load(path)


def test_external_weights_of_a_model_without_a_folder(tmp_path):
    data = with_external_weights(tmp_path).read_bytes()
    with raises(1006):
        tw.load(data)


# --- schedules ---------------------------------------------------------------------------------------------------


@pytest.fixture
def schedule():
    return tw.Schedule(tw.te.matmul(16, 12, 8))


def test_a_block_that_is_not_there(schedule):
    with raises(1401, "D"):
        schedule.loops("D")


@pytest.mark.parametrize("factors", [[None, None], [0, 4], [-2, 8], [], [3]], ids=str)
def test_factors_that_make_no_sense(schedule, factors):
    i, j, k = schedule.loops("C")
    before = str(schedule.func), schedule.trace
    with raises(1401):
        schedule.split(i, factors)
    assert (str(schedule.func), schedule.trace) == before


def test_a_loop_that_was_consumed(schedule):
    i, j, k = schedule.loops("C")
    schedule.split(i, [None, 4])
    with raises(1401, "i"):
        schedule.parallel(i)


def test_a_parallel_reduction(schedule):
    i, j, k = schedule.loops("C")
    with raises(1401, "k"):
        schedule.parallel(k)


def test_a_loop_ordered_twice(schedule):
    i, j, k = schedule.loops("C")
    with raises(1401):
        schedule.reorder(i, i, j)


def test_fusing_loops_that_do_not_touch(schedule):
    i, j, k = schedule.loops("C")
    with raises(1401):
        schedule.fuse(i, k)


def test_a_scope_that_is_not_there(schedule):
    with raises(1401, "cupboard"):
        schedule.cache_write("C", "C", "cupboard")


def test_an_axis_that_is_not_there(schedule):
    i, j, k = schedule.loops("C")
    with raises(1401, "warp.q"):
        schedule.bind(i, "warp.q")


BAD_TRACES = ["i = ", "split(", "a b c", 'i, j, k = loops("C"', "\x00\xff"]


@pytest.mark.parametrize("trace", BAD_TRACES, ids=repr)
def test_a_trace_that_does_not_parse(trace):
    with raises(1402):
        tw.Schedule.replay(trace, tw.te.matmul(4, 4, 4))


def test_a_trace_of_another_program():
    with raises(1401, "C"):
        tw.Schedule.replay('n, c = loops("conv")', tw.te.matmul(4, 4, 4))


@pytest.mark.parametrize(
    "text", ["", "func", "func f(", "func f() {", "}", "\x00" * 50, "(" * 100_000], ids=lambda t: t[:8]
)
def test_a_func_that_does_not_parse(text):
    with raises(1402):
        tw.te.parse(text)


def test_tensor_expressions_with_mistakes():
    a = tw.te.placeholder("A", (4, 4))
    with raises(1402, "2 dimensions"):
        tw.te.compute("B", (4,), lambda i: a[i])
    with raises(1402, "f32", "i64"):
        tw.te.compute("B", (4,), lambda i: a[i, i] + i)
    with raises(1402, "f99"):
        tw.te.placeholder("A", (4,), "f99")
    with raises(1402, "combiner"):
        tw.te.reduce("B", (4,), (4,), lambda i, k: a[i, k], combiner="average")
    with raises(1402, "frob"):
        tw.te.compute("B", (4,), lambda i: tw.te.call("frob", a[i, i]))


def test_small_network_is_what_the_other_tests_think():
    onnx.checker.check_model(small_network(), full_check=True)


# --- forms that other libraries take, and options of other types --------------------------------------------------


def test_a_run_as_elsewhere_says_how_it_is_here(executable, x):
    with raises(1101, "as a dict", "NoneType", "executable.run({'x': …})"):
        executable.run(None, {"x": x})
    with raises(1101, "as a dict", "ndarray", "executable(…)"):
        executable.run(x)
    with raises(1101, "out is a dict"):
        executable.run({"x": x}, out=[x])


def test_no_target_is_this_machine(network):
    model = tw.load(network)
    assert tw.compile(model, target=None).target == tw.compile(model).target
    with raises(1301, "target=3"):
        tw.compile(model, target=3)


@pytest.mark.parametrize(
    ("options", "code", "mentions"),
    [
        ({"winograd": "no"}, 1101, "winograd='no'"),
        ({"winograd": None}, 1101, "winograd=None"),
        ({"strassen": 1}, 1101, "strassen=1"),
        ({"precision": None}, 1003, "None"),
        ({"in_place": ["y"]}, 1101, "in_place=['y']"),
        ({"db": 5}, 1001, "db=5"),
        ({"threads": "all"}, 1301, "threads='all'"),
        ({"profiles": "x"}, 1004, "profiles='x'"),
    ],
    ids=str,
)
def test_options_of_another_type(network, options, code, mentions):
    with raises(code, mentions):
        tw.compile(network, **options)


@pytest.mark.parametrize("shapes", [[(1, 3, 16, 16)], {"x": 3}, {"x": "1,3"}], ids=str)
def test_shapes_of_another_type(network, shapes):
    with raises(1004, "help: shapes={'x': (1, 3, 224, 224)}"):
        tw.load(network, shapes=shapes)


def test_an_artifact_is_no_model(executable, tmp_path):
    executable.save(tmp_path / "m.twa")
    for source in (tmp_path / "m.twa", executable.to_bytes()):
        for function in (tw.load, tw.explain):
            with raises(1002, "artifact", "tw.load_executable"):
                function(source)
    with raises(1001, "path=None"):
        executable.save(None)
    with raises(1001, "source=3"):
        tw.load_executable(3)


def test_a_model_explains_itself_when_its_file_has_gone(network, tmp_path):
    onnx.save(network, tmp_path / "m.onnx")
    model = tw.load(tmp_path / "m.onnx")
    expected = tw.explain(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").unlink()
    assert model.explain() == expected and "m.onnx" in expected


def test_a_model_without_a_file_has_no_name_of_one():
    with raises(1002, "the model: not a readable ONNX file"):
        tw.load(b"garbage")
