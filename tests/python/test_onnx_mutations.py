"""Models of ONNX's suite with something changed: each imports or is refused with a code; none ends the process."""

import random
import tempfile
import warnings
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from onnx.backend.test.loader import load_model_tests

from onnx_suite import bind, run_folders

RUNNER = Path(__file__).resolve().parents[2] / "build/tests/onnx_node_runner"
COUNT = 2000
ODD_INTS = [0, 1, -1, 2, 3, 7, -7, 100, 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1]
ODD_TYPES = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8, TensorProto.FLOAT16]


def change_attribute(rng, node):
    if not node.attribute:
        return
    a = rng.choice(node.attribute)
    kind = rng.randrange(5)
    if kind == 0:
        node.attribute.remove(a)
    elif a.type == onnx.AttributeProto.INT:
        a.i = rng.choice(ODD_INTS)
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
    elif a.type == onnx.AttributeProto.STRING:
        a.s = rng.choice([b"", b"nonsense", b"SAME_UPPER", b"linear", b"i,j->k", b"...,->"])
    elif a.type == onnx.AttributeProto.INTS:
        values = list(a.ints)
        if kind == 1 and values:
            values.pop()
        elif kind == 2:
            values.append(rng.choice(ODD_INTS))
        elif values:
            values[rng.randrange(len(values))] = rng.choice(ODD_INTS)
        del a.ints[:]
        a.ints.extend(values)


def change_shape(rng, info):
    dims = info.type.tensor_type.shape.dim
    kind = rng.randrange(4)
    if kind == 0 and dims:
        del dims[-1]
    elif kind == 1:
        dims.add().dim_value = rng.choice([0, 1, 2, 5])
    elif kind == 2 and dims:
        dims[rng.randrange(len(dims))].dim_value = rng.choice([0, 1, 2, 3, 8, 2**33])
    elif dims:
        dims[rng.randrange(len(dims))].dim_param = "n"


def change_constant(rng, tensor):
    if tensor.data_type != TensorProto.INT64 or not tensor.raw_data:
        return
    count = len(tensor.raw_data) // 8
    values = [int.from_bytes(tensor.raw_data[8 * i : 8 * i + 8], "little", signed=True) for i in range(count)]
    values[rng.randrange(count)] = rng.choice(ODD_INTS)
    tensor.raw_data = b"".join(v.to_bytes(8, "little", signed=True) for v in values)


def mutate(rng, model):
    mutant = onnx.ModelProto()
    mutant.CopyFrom(model)
    graph = mutant.graph
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.randrange(8)
        node = rng.choice(graph.node) if graph.node else helper.make_node("Relu", [], [])
        if kind <= 1:
            change_attribute(rng, node)
        elif kind == 2 and graph.input:
            change_shape(rng, rng.choice(graph.input))
        elif kind == 3 and graph.input:
            rng.choice(graph.input).type.tensor_type.elem_type = rng.choice(ODD_TYPES)
        elif kind == 4 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", *[i.name for i in graph.input]])
        elif kind == 5 and node.input:
            del node.input[-1]
        elif kind == 6 and graph.initializer:
            change_constant(rng, rng.choice(graph.initializer))
        elif kind == 7 and graph.input and node.input:
            made = helper.make_node(
                rng.choice(["SequenceConstruct", "Optional"]), [rng.choice(graph.input).name], ["made"]
            )
            node.input[rng.randrange(len(node.input))] = "made"
            graph.node.insert(0, made)
    return mutant


def test_changed_models_import_or_are_refused():
    rng = random.Random(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    with tempfile.TemporaryDirectory() as work:
        folders = []
        for k in range(COUNT):
            case = rng.choice(cases)
            model = mutate(rng, bind(case.model, case.data_sets[0][0], rng.choice([0, 1, 1, 9])))
            folder = Path(work) / f"{k}-{case.name}"
            folder.mkdir()
            (folder / "model.onnx").write_bytes(model.SerializeToString())
            folders.append(folder)
        results = run_folders(RUNNER, "import", folders, 300)
        bad = [
            f"{Path(folder).name}: {status} {message[:200]}"
            for folder, (status, message) in results.items()
            if status != "ok" and (not message.startswith("TW1") or message.startswith("TW1999"))
        ]
        assert not bad, f"{len(bad)} of {COUNT}:\n" + "\n".join(bad[:50])
        statuses = [status for status, _ in results.values()]
        assert statuses.count("ok") > COUNT // 20 and statuses.count("error") > COUNT // 20
