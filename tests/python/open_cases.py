"""Cases of ONNX's suite of nodes whose inputs have open dimensions: compiled once, run at several sizes.

    python tests/python/open_cases.py [PATTERN [CASES OF AN OPERATOR [TARGET]]]

prints each opening that is refused, wrong or crashes.
"""

import itertools
import re
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeImplementationError

import tilewright as tw
from conftest import from_zero
from onnx_suite import DRAWN, as_tensor, bind, check
from random_graphs import REFUSED, run_onnxruntime

# One extent wherever inputs have it, two of them, or every dimension under a name of its own.
OPENINGS = ("one", "two", "all")


@dataclass
class Outcome:
    case: str
    operator: str
    opening: str
    status: str  # right, refused, wrong
    message: str
    runs: int = 0  # sizes that were compared
    open_dimensions: int = 0  # that are left


def is_taken(model):
    """With the sizes that the case has."""
    try:
        tw.load(model)
    except tw.Error:
        return False
    return True


def cases_of_operators(pattern="", most=3):
    """At most so many cases of each operator, those with the most inputs first; no bodies of functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in load_model_tests(kind="node") if pattern in c.name and "_expanded" not in c.name]
    of_operator = defaultdict(list)
    for case in cases:
        inputs = [as_tensor(v, "x") for v in case.data_sets[0][0]]
        is_one = len(case.model.graph.node) == 1 and None not in inputs and any(t.dims for t in inputs)
        has_tensors = all(i.type.HasField("tensor_type") for i in case.model.graph.input)
        if is_one and has_tensors and is_taken(bind(case.model, case.data_sets[0][0], 1)):
            of_operator[case.model.graph.node[0].op_type].append(case)
    of_operator.pop("ImageDecoder", None)  # random bytes are no images (test_images.py has some)
    for operator, found in sorted(of_operator.items()):
        found.sort(key=lambda case: -len(case.model.graph.input))
        yield from ((operator, case) for case in found[:most])


def first_constants(case):
    """Which inputs are made constants: none, lists of integers, all but the first."""
    arrays = [numpy_helper.to_array(as_tensor(v, "x")) for v in case.data_sets[0][0]]
    lists = {k for k, a in enumerate(arrays) if k > 0 and a.dtype.kind == "i" and a.ndim <= 1}
    return arrays, [set(), lists, set(range(1, len(arrays)))]


def opened(case, arrays, constants, opening):
    """The model with these inputs as constants and the dimensions of the others open, and the case's sizes of them."""
    model, sizes = onnx.ModelProto(), {}
    model.CopyFrom(case.model)
    infos = list(model.graph.input)[: len(arrays)]
    del model.graph.input[:]
    extents = {}
    if opening != "all":
        shape = next(a.shape for k, a in enumerate(arrays) if k not in constants and a.ndim)
        extents = {shape[0]: "n"} if opening == "one" else {shape[-1]: "m", shape[0]: "n"}
    for k, (info, array) in enumerate(zip(infos, arrays, strict=True)):
        if k in constants:
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
            continue
        dims = [f"{info.name}_{d}" if opening == "all" else extents.get(n, n) for d, n in enumerate(array.shape)]
        sizes |= {dim: size for dim, size in zip(dims, array.shape, strict=True) if isinstance(dim, str)}
        model.graph.input.append(helper.make_tensor_value_info(info.name, info.type.tensor_type.elem_type, dims))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model, sizes


def shapes_at(executable, sizes):
    """The inputs' shapes where the open dimensions have these sizes."""
    return {
        name: [eval(dim, {"min": min, "max": max}, dict(sizes)) for dim in split(re.fullmatch(r"\w+\[(.*)\]", text)[1])]
        for name, text in executable.input_tensors.items()
    }


def split(text):
    """`a, min(b, c)` at commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [p for p in parts if p.strip()]


def runs(executable, own):
    """Sizes of the open dimensions: the case's own, ones, odd ones that differ, each in turn large, all and each 0."""
    bounds = executable.dimensions
    wanted = [[own[name] for name in bounds], [1] * len(bounds), [3 + 2 * (k % 3) for k in range(len(bounds))]]
    wanted += [[37 if k == large else 2 for k in range(len(bounds))] for large in range(len(bounds))]
    own_sizes = wanted[0]
    empty = [[0] * len(bounds)] + [[0 if k == at else n for k, n in enumerate(own_sizes)] for at in range(len(bounds))]
    for sizes in wanted[:6] + empty[:6]:
        yield {
            name: max(low, min(size, size if high is None else high))
            for (name, (low, high)), size in zip(bounds.items(), sizes, strict=True)
        }


def answer(model, feed):
    """Of the reference evaluator, or of ONNX Runtime for what that does not have.  None: none at these sizes."""
    try:
        return ReferenceEvaluator(model).run(None, feed)
    except RuntimeImplementationError:
        try:
            return run_onnxruntime(model, list(feed.values()))
        except REFUSED:
            return None
    except Exception:  # whatever numpy raises
        return None


def compare(executable, model, case, arrays, sizes):
    """Whether both gave an answer.  AssertionError where these differ."""
    feed = {
        name: np.resize(arrays[name], shape).astype(arrays[name].dtype)
        for name, shape in shapes_at(executable, sizes).items()
    }
    # Integers may be indices into the first input.
    least = min([n for n in next(iter(feed.values())).shape if n], default=1)
    for name in list(feed)[1:]:
        if feed[name].dtype in (np.int32, np.int64):
            feed[name] = np.fmod(feed[name], least)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = answer(model, feed)
        try:
            have = executable.run(feed)
        except tw.Error as error:
            assert str(error).startswith("TW1101"), f"{sizes}: {error}"
            return False
        if wanted is None:
            return False
        try:
            wanted = [w if isinstance(w, list) else np.asarray(w) for w in wanted]
            if case.name in DRAWN:
                DRAWN[case.name](list(feed.values()), wanted, list(have.values()))
            else:
                check(wanted, list(have.values()), case.rtol, max(case.atol, 1e-5))
        except AssertionError as error:
            raise AssertionError(f"{sizes}: {' '.join(str(error).split())}") from None
    return True


def reason(error):
    """Without what begins and ends every refusal."""
    text = " ".join(str(error).split())
    found = re.search(r" node: \w+ \([^)]*\): (.*?) help: `tw explain`", text)
    return found[1] if found else text


def outcome(operator, case, opening, target="cpu"):
    arrays, choices = first_constants(case)
    result = Outcome(case.name, operator, opening, "refused", "")
    for constants in choices:
        if all(k in constants or not a.ndim for k, a in enumerate(arrays)):
            continue
        model, own = opened(case, arrays, constants, opening)
        try:
            executable = tw.compile(model, target, shapes=from_zero(model))
        except tw.Error as error:
            result.message = reason(error)
            continue
        result.open_dimensions = len(executable.dimensions)
        named = {i.name: a for i, a in zip(case.model.graph.input, arrays, strict=False)}
        try:
            result.runs = sum(compare(executable, model, case, named, sizes) for sizes in runs(executable, own))
            result.status, result.message = "right", ""
        except AssertionError as error:
            result.status, result.message = "wrong", str(error)
        return result
    return result


def outcomes(pattern="", most=3, target="cpu"):
    for (operator, case), opening in itertools.product(cases_of_operators(pattern, most), OPENINGS):
        yield outcome(operator, case, opening, target)


if __name__ == "__main__":
    counts = defaultdict(int)
    for o in outcomes("".join(sys.argv[1:2]), *map(int, sys.argv[2:3]), *sys.argv[3:4]):
        status = o.status if o.status != "right" or o.runs else "not compared"
        counts[status] += 1
        if status != "right":
            print(f"{status:12} {o.case} {o.opening}: {' '.join(o.message.split())[:400]}", flush=True)
    print(dict(counts))
