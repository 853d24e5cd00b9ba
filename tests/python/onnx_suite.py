"""ONNX's backend suite of nodes, run by tests/onnx_node_runner.cpp and compared here.

    python tests/python/onnx_suite.py RUNNER oracle|TARGET [PATTERN [FIRST CONSTANT INPUT]]

prints what passed, was refused, was wrong and crashed, case by case.
"""

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from tilewright import _core
from tilewright.lists import Values

# Cases whose expected zeros are rounding errors of f32, larger than the suite's own bound; ours are smaller.
ROUNDED_ZEROS = {"test_dft_inverse_opset19": 1e-6, "test_dft_inverse": 1e-6}


def check_bernoulli(inputs, expected, actual):
    """Zeros and ones, of the expected type, and not the same for ten probabilities or more."""
    (p,), (want,), (have,) = inputs, expected, actual
    assert have.shape == p.shape and have.dtype == want.dtype, f"{have.dtype}{have.shape}"
    assert set(np.unique(have)) <= {0, 1} and (have.size < 10 or len(np.unique(have)) == 2), f"{have}"


def check_dropout(inputs, expected, actual):
    """y is x / (1 - ratio) where the mask says so, else 0, and some of 60 elements or more are of either kind."""
    x, ratio, mode = inputs
    assert mode and [(v.shape, v.dtype) for v in actual] == [(v.shape, v.dtype) for v in expected]
    y, mask = actual[0], actual[1] if len(actual) > 1 else actual[0] != 0
    assert mask.size < 60 or 0 < mask.sum() < mask.size, f"{mask.sum()} of {mask.size} are kept"
    np.testing.assert_allclose(y, x * mask / (1 - ratio), rtol=1e-6)


# Cases whose expected values are what numpy's generator has drawn, which the operators leave open: what is drawn here
# is compared by what it has to be like.
DRAWN = {
    **{
        f"test_bernoulli{kind}{form}": check_bernoulli
        for kind in ("", "_double", "_seed")
        for form in ("", "_expanded")
    },
    **{f"test_training_dropout{kind}{output}": check_dropout for kind in ("", "_default") for output in ("", "_mask")},
}


@dataclass
class Result:
    name: str
    status: str  # passed, refused, wrong, crashed
    message: str
    operators: frozenset


def as_tensor(value, name):
    """An input of the suite as a TensorProto; nothing for sequences, maps and optionals."""
    if isinstance(value, onnx.TensorProto):
        tensor = onnx.TensorProto()
        tensor.CopyFrom(value)
        tensor.name = name
        return tensor
    if isinstance(value, (np.ndarray, np.generic)):
        return numpy_helper.from_array(np.asarray(value), name)
    return None


def given_inputs(model):
    """Old models list their initializers among the inputs, too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constants]


def bind(model, inputs, first):
    """The model with the inputs from `first` on made constants of it, as exporters write shapes, axes and scales."""
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for info, v in list(zip(given_inputs(model), inputs, strict=False))[first:]:
        if (tensor := as_tensor(v, info.name)) is not None:
            bound.graph.initializer.append(tensor)
    return bound


def write_case(folder, model, inputs, names=None):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    named = []
    constants = {tensor.name for tensor in model.graph.initializer}
    for name, v in zip(names or [info.name for info in given_inputs(model)], inputs, strict=False):
        if name in constants:
            continue
        named += [(f"{name}.{k}", part) for k, part in enumerate(v)] if isinstance(v, list) else [(name, v)]
    tensors = [as_tensor(v, name) for name, v in named]
    graph = helper.make_graph([], "inputs", [], [], initializer=[t for t in tensors if t is not None])
    (folder / "inputs.onnx").write_bytes(helper.make_model(graph).SerializeToString())


def read_outputs(path):
    data, outputs = path.read_bytes(), []
    while data:
        line, data = data.split(b"\n", 1)
        name, *dims = line.decode().split()
        dtype, shape = _core.numpy_dtype(name), tuple(map(int, dims))
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        outputs.append(np.frombuffer(data[:size], dtype).reshape(shape))
        data = data[size:]
    return outputs


def read_lists(path):
    rows = [line.split(" ") for line in path.read_text().splitlines()]

    def keys(items, sign):
        return [item[1:] for item in items if item[0] == sign]

    return [
        (
            name,
            kind,
            *map(int, items[:3]),
            [bytes.fromhex(w).decode() for w in keys(items, "w")],
            [*map(int, keys(items, "n"))],
        )
        for name, kind, *items in rows
    ]


def check(expected, actual, rtol, atol):
    """The comparison of onnx.backend.test.runner, but for float16.  AssertionError."""
    assert len(expected) == len(actual), f"{len(actual)} values, not {len(expected)}"
    for want, have in zip(expected, actual, strict=True):
        if isinstance(have, list) or have is None:
            assert isinstance(want, list) == isinstance(have, list), f"{have}, not {want}"
            check(want or [], have or [], rtol, atol)
            continue
        if isinstance(want, onnx.TensorProto):
            want = numpy_helper.to_array(want)
        want = np.asarray(want)
        np.testing.assert_array_equal(have.shape, want.shape)
        if have.dtype == object:
            np.testing.assert_array_equal(have, want.astype(object))
            continue
        assert have.dtype == want.dtype, f"{have.dtype}, not {want.dtype}"
        tolerance = rtol
        if have.dtype.name == "bfloat16":
            tolerance = max(rtol, 2**-6)
            have, want = have.astype(np.float32), want.astype(np.float32)
        elif have.dtype == np.float16:
            # Two ULPs, as the suite allows bfloat16: its own f16 softmax rounds each step, ours only the result.
            tolerance = max(rtol, 2**-9)
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=atol)


def run_folders(runner, mode, folders, timeout, env=None, form=None):
    """{folder: (status, message)}.  The runner starts again after a case that ends it."""
    command = [runner, mode, *([form] if form else [])]
    results, left = {}, [str(f) for f in folders]
    while left:
        try:
            done = subprocess.run(
                command, input="\n".join(left) + "\n", capture_output=True, text=True, timeout=timeout, env=env
            )
            output, ending = done.stdout, f"exit status {done.returncode}"
        except subprocess.TimeoutExpired as expired:
            output, ending = (expired.stdout or b"").decode(), f"no answer within {timeout} s"
        for line in output.split("\n")[:-1]:
            status, folder, message = line.split("\t", 2)
            results[folder] = (status, message)
        left = [f for f in left if f not in results]
        if left:
            results[left[0]] = ("crashed", ending)
            left = left[1:]
    return results


def loaded(case):
    """The case with its model and data, which those of files have in a folder."""
    if case.model is not None:
        return case
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")

    def values(data_set, infos, kind):
        return [read_value(data_set / f"{kind}_{i}.pb", info.type) for i, info in enumerate(infos)]

    data_sets = [
        (values(data_set, given_inputs(model), "input"), values(data_set, model.graph.output, "output"))
        for data_set in sorted(folder.glob("test_data_set*"))
    ]
    return dataclasses.replace(case, model=model, data_sets=data_sets)


def read_value(path, kind):
    """A tensor, or a list of what is in a sequence."""
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


# Of ONNX's suite those that need no download: single nodes, and small models in files, mostly of old opsets.
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


def run_suite(runner, mode, pattern="", bound_from=None, timeout=900, jobs=None, every=1, env=None, kinds=("node",)):
    """Every case of the suite with the pattern in its name (or one in `every`), as Results.

    Inputs from `bound_from` on are constants.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [loaded(c) for kind in kinds for c in load_model_tests(kind=kind) if pattern in c.name][::every]
    with tempfile.TemporaryDirectory() as work:
        folders = {}
        for case in cases:
            for k, (inputs, outputs) in enumerate(case.data_sets):
                folder = Path(work) / f"{case.name}-{k}"
                names = [info.name for info in given_inputs(case.model)]
                model = case.model if bound_from is None else bind(case.model, inputs, bound_from)
                write_case(folder, model, inputs, names)
                folders[str(folder)] = (case, inputs, outputs)
        # Not one after the other, so that the slow ones do not meet in one share.
        jobs = jobs or max(1, len(os.sched_getaffinity(0)))
        shares = [list(folders)[k::jobs] for k in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            done = {}
            for part in pool.map(lambda share: run_folders(runner, mode, share, timeout, env), shares):
                done |= part
        results = []
        for folder, (case, inputs, outputs) in folders.items():
            status, message = done[folder]
            if status == "ok":
                status = "passed"
                try:
                    with np.errstate(all="ignore"):
                        atol = ROUNDED_ZEROS.get(case.name, case.atol)
                        arrays, lists = read_outputs(Path(folder) / "outputs.bin"), Path(folder) / "lists.txt"
                        values = Values([("", "")] * len(arrays), read_lists(lists)).of(arrays)
                        if case.name in DRAWN:
                            DRAWN[case.name](inputs, outputs, values)
                        else:
                            check(outputs, values, case.rtol, atol)
                except AssertionError as error:
                    status, message = "wrong", " ".join(str(error).split())
            elif status == "error":
                status = "wrong" if message.startswith(("TW1004", "TW1101")) else "crashed"
            operators = frozenset(n.op_type for n in case.model.graph.node)
            results.append(Result(case.name, status, message, operators))
    return results


def reason_of(message):
    """Why a case is refused, in few words: element types, or the operator and what of it."""
    if found := re.search(r"elements of type (\w+)", message):
        return f"elements of type {found[1]}"
    found = re.search(r"% covered\)\s+(\S+)\s+\d+ nodes?:\s+\S+(?: \([^)]*\))?(?:: (.*?))?\s+help", message)
    if found:
        return found[1] + (f": {found[2]}" if found[2] else "")
    return message.split("  help")[0].split(": ", 1)[-1].strip()


def summary(results):
    """The counts as one line, and the operators that occur in passed cases."""
    counts = Counter(r.status for r in results)
    operators = set().union(*[r.operators for r in results if r.status == "passed"])
    line = ", ".join(f"{counts[s]} {s}" for s in ("passed", "refused", "wrong", "crashed"))
    drawn = sum(r.status == "passed" and r.name in DRAWN for r in results)
    line += f" ({drawn} of those that passed by the properties of random numbers)" * (drawn > 0)
    return f"{len(results)} cases of ONNX's suite: {line}; {len(operators)} operators", counts, operators


if __name__ == "__main__":
    found = run_suite(sys.argv[1], sys.argv[2], *sys.argv[3:4], *map(int, sys.argv[4:5]), kinds=KINDS)
    for r in found:
        if r.status != "passed":
            print(f"{r.status:8} {r.name}: {r.message[:300]}")
    print(summary(found)[0])
