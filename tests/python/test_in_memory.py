"""Executables without files: their bytes, pickles, and clones that run at once."""

import multiprocessing
import pickle
import threading

import numpy as np
import pytest

import tilewright as tw
from conftest import model_of, small_network, value


@pytest.fixture(scope="module")
def executable():
    return tw.compile(small_network(), threads=2)


@pytest.fixture
def x():
    return np.random.default_rng(3).standard_normal((1, 3, 16, 16)).astype(np.float32)


def outputs(executable, x):
    return list(executable.run({"x": x}).values())


def assert_same(a, b):
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


def test_bytes_are_those_of_the_file(executable, x, tmp_path):
    executable.save(tmp_path / "m.twa")
    data = executable.to_bytes()
    assert (tmp_path / "m.twa").read_bytes() == data == tw.load_executable(data).to_bytes()
    for form in (data, bytearray(data), memoryview(data)):
        assert_same(outputs(tw.load_executable(form), x), outputs(executable, x))


def test_damaged_bytes_are_told_so(executable):
    data = bytearray(executable.to_bytes())
    for wrong in (b"", b"garbage", bytes(data[:-1]), bytes(data[1:])):
        with pytest.raises(tw.Error, match="TW1201 the artifact in memory: "):
            tw.load_executable(wrong)
    data[len(data) // 3] ^= 1
    with pytest.raises(tw.Error, match="TW1201"):
        tw.load_executable(data)


def test_an_executable_is_pickled(executable, x):
    again = pickle.loads(pickle.dumps(executable))
    assert again.threads == 2 and again.inputs == executable.inputs
    assert_same(outputs(again, x), outputs(executable, x))


def run_in_child(executable, x, queue):
    queue.put(outputs(executable, x))


def test_another_process_gets_it(executable, x):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=run_in_child, args=(executable, x, queue))
    child.start()
    assert_same(queue.get(timeout=60), outputs(executable, x))
    child.join()


def test_what_calls_python_is_not_pickled():
    model = model_of([("F", ["x"], ["y"], {"domain": "my"})], [value("x", [4])], [value("y", [4])])
    model.opset_import.add(domain="my", version=1)
    own = tw.Operator("my", "F", types=lambda x: x, function=lambda x: x + 1)
    executable = tw.compile(model, operators=[own])
    with pytest.raises(tw.Error, match="TW1102.*pickled"):
        pickle.dumps(executable)
    clone = executable.clone()
    assert clone.run({"x": np.zeros(4, np.float32)})["y"].tolist() == [1] * 4
    again = tw.load_executable(executable.to_bytes(), operators=[own])
    assert again.run({"x": np.zeros(4, np.float32)})["y"].tolist() == [1] * 4


def test_clones_run_at_once(executable):
    """Each in a thread of its own, on inputs of its own; the first one, too."""
    rng = np.random.default_rng(0)
    clones = [executable, *(executable.clone() for _ in range(7))]
    for clone in clones[1:]:
        clone.threads = 1
    inputs = rng.standard_normal((len(clones), 1, 3, 16, 16)).astype(np.float32)
    expected = [outputs(executable, x) for x in inputs]
    found = [None] * len(clones)

    def serve(at):
        found[at] = [outputs(clones[at], inputs[at]) for _ in range(20)]

    workers = [threading.Thread(target=serve, args=(at,)) for at in range(len(clones))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for runs, wanted in zip(found, expected, strict=True):
        for run in runs:
            assert_same(run, wanted)
    assert executable.threads == 2


def test_a_clone_outlives_its_original(x):
    executable = tw.compile(small_network())
    expected, clone = outputs(executable, x), executable.clone()
    del executable
    assert_same(outputs(clone, x), expected)
    loaded = tw.load_executable(clone.to_bytes())
    clone = loaded.clone()
    del loaded
    assert_same(outputs(clone, x), expected)
