"""Sizes of open dimensions that get kernels of their own, in one executable with the model's."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

import tilewright as tw
from conftest import INT64, model_of, value
from tilewright.cli import app


def weights(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def convolutions():
    """With a batch norm that is folded into the weights; an open batch and open maps."""
    norm = {"scale": weights(24, seed=1), "shift": weights(24, seed=2), "mean": weights(24, seed=3)}
    return model_of(
        [
            ("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}),
            ("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"]),
            ("Relu", ["b"], ["c"]),
            ("Conv", ["c", "w2"], ["d"], {"pads": [1, 1, 1, 1]}),
            ("GlobalAveragePool", ["d"], ["e"]),
            ("Flatten", ["e"], ["y"]),
        ],
        [value("x", ["batch", 16, "size", "size"])],
        [value("y", None)],
        {**norm, "var": np.abs(weights(24)) + 1, "w": weights(24, 16, 3, 3), "w2": weights(24, 24, 3, 3)},
    )


def sequence():
    """Self-attention over tokens whose positions are computed."""
    return model_of(
        [
            ("Gather", ["table", "ids"], ["embedded"]),
            ("Shape", ["ids"], ["shape"]),
            ("Gather", ["shape", "one"], ["length"]),
            ("Range", ["zero", "length", "one"], ["positions"]),
            ("Gather", ["places", "positions"], ["placed"]),
            ("Add", ["embedded", "placed"], ["x"]),
            ("MatMul", ["x", "wq"], ["q"]),
            ("MatMul", ["x", "wk"], ["k"]),
            ("Transpose", ["k"], ["kt"], {"perm": [0, 2, 1]}),
            ("MatMul", ["q", "kt"], ["scores"]),
            ("Softmax", ["scores"], ["p"]),
            ("MatMul", ["p", "x"], ["y"]),
        ],
        [value("ids", ["batch", "seq"], INT64)],
        [value("y", None)],
        {
            "table": weights(50, 32),
            "places": weights(40, 32, seed=1),
            "wq": weights(32, 32, seed=2),
            "wk": weights(32, 32, seed=3),
            "zero": np.array(0),
            "one": np.array(1),
        },
    )


def feed_of(executable, sizes, seed=0):
    rng, feed = np.random.default_rng(seed), {}
    for name, kind in executable.inputs.items():
        dtype, _, dims = kind.rstrip("]").replace("`", "").partition("[")
        shape = [sizes[dim] if dim in sizes else int(dim) for dim in dims.split(",")]
        feed[name] = rng.integers(0, 50, shape) if dtype == "i64" else rng.standard_normal(shape).astype(np.float32)
    return feed


def kernels(executable, feed=None):
    return [step["kernel"] for step in executable.describe(feed)["steps"]]


NETWORKS = {
    "convolutions": (
        convolutions,
        [{"batch": 1, "size": 14}, {"batch": (1, 2, 8), "size": 20}, {"size": (5, 9)}],
        [(1, 14), (2, 14), (1, 20), (8, 20), (9, 20), (3, 5), (3, 9), (3, 10), (1, 1)],
    ),
    "sequence": (
        sequence,
        [{"batch": 1, "seq": 16}, {"batch": 1, "seq": (1, 8, 32)}, {"batch": 2}],
        [(1, 16), (1, 15), (1, 32), (1, 33), (2, 7), (2, 40), (3, 16)],
    ),
}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request, tmp_path_factory):
    """(model, profiles, executable, loaded executable, sizes to run at)."""
    make, profiles, sizes = NETWORKS[request.param]
    model, path = make(), tmp_path_factory.mktemp("profiles") / "m.twa"
    executable = tw.compile(model, profiles=profiles, threads=2)
    executable.save(path)
    names = list(executable.dimensions)
    return model, profiles, executable, tw.load_executable(path), [dict(zip(names, s, strict=True)) for s in sizes]


def test_every_size_agrees_with_onnx_runtime_and_the_open_model(network):
    model, _, executable, loaded, sizes = network
    session, general = ort.InferenceSession(model.SerializeToString()), tw.compile(model, threads=2)
    for at in sizes + sizes:
        feed = feed_of(executable, at)
        (wanted,) = session.run(None, feed)
        for candidate in (general, executable, loaded):
            got = candidate.run(feed)["y"]
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=str(at))


def test_an_exact_profile_has_the_kernels_of_a_model_for_this_size(network):
    model, profiles, executable, loaded, sizes = network
    feed = feed_of(executable, sizes[0])
    alone = tw.compile(model, shapes={name: array.shape for name, array in feed.items()}, threads=2)
    assert kernels(executable, feed) == kernels(loaded, feed) == kernels(alone)
    assert kernels(executable, feed) != kernels(executable, feed_of(executable, sizes[-1]))


def test_runs_take_the_first_profile_that_fits(network):
    model, profiles, executable, _, sizes = network
    general = tw.compile(model, threads=2)
    for at in sizes:
        fits = [
            all(np.min(p[name]) <= at[name] <= np.max(p[name]) if name in p else True for name in at) for p in profiles
        ]
        is_special = kernels(executable, feed_of(executable, at)) != kernels(general, feed_of(general, at))
        assert is_special == any(fits), at


def test_it_says_which_sizes_have_kernels_of_their_own(network):
    _, profiles, executable, loaded, _ = network
    for each in (executable, loaded):
        assert len(each.profiles) == len(profiles)
        assert each.describe()["profiles"] == executable.describe()["profiles"]
        assert each.report().count("Kernels of their own for") == len(profiles)
    first = {name: (size, size) for name, size in profiles[0].items()}
    assert executable.profiles[0] == first


def test_constants_are_stored_once(tmp_path):
    wide = model_of(
        [("MatMul", ["x", "w"], ["a"]), ("Add", ["a", "b"], ["y"])],
        [value("x", ["n", 700])],
        [value("y", None)],
        {"w": weights(700, 700), "b": weights(700)},
    )
    sizes = {}
    for name, profiles in {"open": None, "three": [{"n": 64}, {"n": 128}, {"n": (300, 400)}]}.items():
        tw.compile(wide, profiles=profiles).save(tmp_path / name)
        sizes[name] = (tmp_path / name).stat().st_size
    assert sizes["three"] < 2.5 * sizes["open"]  # in two layouts, for few rows and for many
    folded = tw.compile(convolutions(), profiles=[{"batch": 1}, {"batch": 2}, {"batch": (3, 4)}])
    assert folded.describe()["constants"] == tw.compile(convolutions()).describe()["constants"]


def halves():
    """As many as half of n are m: an equality that each run checks."""
    model = model_of(
        [("MaxPool", ["x"], ["a"], {"kernel_shape": [2], "strides": [2]}), ("Add", ["a", "w"], ["y"])],
        [value("x", [1, 2, "n"]), value("w", [1, 2, "m"])],
        [value("y", None)],
    )
    return model, {"x": (1, 2, tw.Dim("n", 8)), "w": (1, 2, tw.Dim("m", 4))}


def bounded():
    return tw.load(sequence(), {"ids": ("batch", tw.Dim("seq", 1, 40))})


def error_of(profiles, model=None, **options):
    with pytest.raises(tw.Error) as caught:
        tw.compile(model or bounded(), profiles=profiles, **options)
    assert "help:" in str(caught.value)
    return str(caught.value)


def test_what_a_model_cannot_have_is_refused():
    assert "`batch` 1.., `seq` 1..40" in error_of([{"sequence": 1}])
    assert "are 1..40" in error_of([{"batch": 1}, {"seq": 41}])
    assert "are 1..40" in error_of([{"seq": (0, 5)}])
    assert "the smallest first" in error_of([{"seq": (9, 5)}])
    assert "the smallest first" in error_of([{"seq": (1, 9, 5)}])
    assert "whole number" in error_of([{"seq": "8"}])
    assert "whole number" in error_of([{"seq": 8.5}])
    assert "whole number" in error_of([{"seq": ()}])
    assert "names no dimension" in error_of([{}])
    assert "no list of profiles" in error_of({"seq": 8})
    assert "no open dimensions" in error_of([{"seq": 8}], sequence(), shapes={"ids": (1, 8)})


def test_the_models_equalities_hold_in_profiles():
    model, shapes = halves()
    assert "are not equal there" in error_of([{"n": 8, "m": 5}], model, shapes=shapes)
    assert "are not equal there" in error_of([{"n": (8, 11), "m": (6, 9)}], model, shapes=shapes)
    executable = tw.compile(model, profiles=[{"n": 8}, {"n": (20, 40)}], shapes=shapes)
    assert executable.profiles == [{"n": (8, 8), "m": (4, 4)}, {"n": (20, 40), "m": (4, None)}]
    for n in (8, 9, 20, 33, 40, 41):
        feed = {"x": weights(1, 2, n), "w": weights(1, 2, n // 2)}
        wanted = ort.InferenceSession(model.SerializeToString()).run(None, feed)[0]
        np.testing.assert_array_equal(executable.run(feed)["y"], wanted)
        with pytest.raises(tw.Error, match="TW1101"):
            executable.run({"x": weights(1, 2, n), "w": weights(1, 2, n // 2 + 1)})


def test_every_check_of_a_run_stays():
    executable = tw.compile(bounded(), profiles=[{"batch": 1, "seq": 8}])
    for shape in ((1, 41), (0, 8), (8,)):
        with pytest.raises(tw.Error, match="TW1101"):
            executable.run({"ids": np.zeros(shape, np.int64)})
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"ids": np.zeros((1, 8), np.float32)})


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_precisions(precision):
    executable = tw.compile(sequence(), profiles=[{"batch": 1, "seq": 16}], precision=precision)
    for at in ({"batch": 1, "seq": 16}, {"batch": 2, "seq": 5}):
        feed = feed_of(executable, at)
        (wanted,) = ort.InferenceSession(sequence().SerializeToString()).run(None, feed)
        np.testing.assert_allclose(executable.run(feed)["y"], wanted, rtol=0.05, atol=0.05)


def test_caches_are_updated_in_place():
    model = model_of(
        [("ScatterElements", ["cache", "at", "new"], ["present"], {"axis": 0})],
        [value("cache", [64, 8]), value("at", ["n", 8], INT64), value("new", ["n", 8])],
        [value("present", [64, 8])],
    )
    executable = tw.compile(model, profiles=[{"n": 1}], in_place={"present": "cache"})
    for n in (1, 3, 1):
        cache, at, new = np.zeros((64, 8), np.float32), np.tile(np.arange(n)[:, None], (1, 8)), weights(n, 8)
        got = executable.run({"cache": cache, "at": at, "new": new})["present"]
        assert got is cache
        np.testing.assert_array_equal(got[:n], new)


def test_the_command_line(tmp_path):
    path, artifact = tmp_path / "m.onnx", tmp_path / "m.twa"
    path.write_bytes(sequence().SerializeToString())
    run = CliRunner().invoke
    options = ["--profile", "batch=1,seq=16", "--profile", "batch=1,seq=1..8..32", "--profile", "seq=2..3"]
    assert run(app, ["compile", str(path), "-o", str(artifact), *options], catch_exceptions=False).exit_code == 0
    assert tw.load_executable(artifact).profiles[1] == {"batch": (1, 1), "seq": (1, 32)}
    shown = run(app, ["inspect", str(artifact)], catch_exceptions=False).output
    assert "batch=1, seq=16" in shown and "batch=1.., seq=2..3" in shown
    sizes = ["--size", "batch=1", "--size", "seq=16", "--seed", "1"]
    for file in ([str(path), *options], [str(path), "--specialise"], [str(artifact)]):
        assert run(app, ["run", *file, *sizes], catch_exceptions=False).exit_code == 0
    for wrong in ("batch", "batch=", "batch=1..2..3..4", "batch=-1", "batch=1;seq=2", "=1"):
        with pytest.raises(tw.Error, match="TW1004"):
            run(app, ["compile", str(path), "--profile", wrong], catch_exceptions=False)


def test_sizes_of_profiles_are_tuned(tmp_path, trials_of_a_task):
    db, profiles, starts = tmp_path / "tune.db", [{"batch": 2, "size": 12}, {"batch": 2, "size": 20}], []
    report = tw.tune(
        convolutions(),
        db=db,
        budget="60s",
        threads=1,
        winograd=False,
        profiles=profiles,
        on_event=lambda event: starts.append(event) if event["event"] == "start" else None,
    )
    assert report.trials > 0 and len(starts) == len(profiles)
    executable = tw.compile(convolutions(), db=db, threads=1, winograd=False, profiles=profiles)
    assert "with schedules from the database" in executable.report()
    for size in (12, 20, 13):
        feed = feed_of(executable, {"batch": 2, "size": size})
        (wanted,) = ort.InferenceSession(convolutions().SerializeToString()).run(None, feed)
        np.testing.assert_allclose(executable.run(feed)["y"], wanted, rtol=1e-3, atol=1e-4)


def test_sizes_are_compiled_for_when_they_come():
    executable, general = tw.compile(sequence(), specialise=True, threads=1), tw.compile(sequence(), threads=1)
    assert executable.profiles == []
    sizes = [(1, 16), (2, 7), (1, 16), (2, 7), (3, 1)]
    for batch, seq in sizes:
        feed = feed_of(executable, {"batch": batch, "seq": seq})
        np.testing.assert_allclose(executable.run(feed)["y"], general.run(feed)["y"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(executable(feed["ids"])[0], general.run(feed)["y"], rtol=1e-4, atol=1e-5)
    assert executable.threads == 1
    assert [(p["batch"][0], p["seq"][0]) for p in executable.profiles] == [(1, 16), (2, 7), (3, 1)]
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"ids": np.zeros((1, 2, 3), np.int64)})
    fixed = tw.compile(sequence(), shapes={"ids": (1, 8)}, specialise=True)
    fixed.run({"ids": np.zeros((1, 8), np.int64)})
    assert fixed.profiles == []


def test_sizes_come_from_many_threads_at_once():
    executable = tw.compile(sequence(), specialise=True, threads=1)
    feeds = [feed_of(executable, {"batch": 1 + n % 2, "seq": 3 + n % 3}) for n in range(12)]
    wanted = [tw.compile(sequence(), threads=1).run(feed)["y"] for feed in feeds]
    with ThreadPoolExecutor(6) as pool:
        for got, expected in zip(pool.map(executable.run, feeds), wanted, strict=True):
            np.testing.assert_allclose(got["y"], expected, rtol=1e-4, atol=1e-5)
    assert len(executable.profiles) == 6
