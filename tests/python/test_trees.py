"""Ensembles of decision trees of ai.onnx.ml, beside ONNX Runtime: random trees of all modes, and what is no tree."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
KINDS = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("float64"): TensorProto.DOUBLE}
KINDS |= {np.dtype("int64"): TensorProto.INT64, np.dtype("int32"): TensorProto.INT32}


def model_of(op, x, outputs, opset, rows="rows", **attributes):
    node = helper.make_node(op, ["x"], [name for name, _ in outputs], domain="ai.onnx.ml", **attributes)
    inputs = [helper.make_tensor_value_info("x", KINDS[x.dtype], [rows, x.shape[1]])]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(n, k, None) for n, k in outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def random_tree(rng, features, depth, modes, numbers):
    """A leaf, or (mode, feature, number or numbers, whether NaN is true, what is on both sides)."""
    if depth == 0 or rng.random() < 0.15:
        return None
    sides = [random_tree(rng, features, depth - 1, modes, numbers) for _ in range(2)]
    mode, number = rng.choice(modes), float(rng.choice(numbers))
    if mode == "BRANCH_MEMBER":
        number = rng.choice(numbers, rng.integers(1, 6)).tolist()
    return str(mode), int(rng.integers(features)), number, int(rng.integers(2)), sides


def listed(trees):
    """Nodes as attributes of the first opsets, and the leaves, each a tree and a number."""
    names = "treeids nodeids modes featureids values truenodeids falsenodeids missing_value_tracks_true"
    nodes = {f"nodes_{name}": [] for name in names.split()}
    leaves = []
    for tree, root in enumerate(trees):
        waiting, count = [root], 1
        for number, node in enumerate(waiting):
            mode, feature, value, missing, sides = node or ("LEAF", 0, 0.0, 0, [])
            children = [count + k for k in range(len(sides))] or [0, 0]
            count += len(sides)
            waiting += sides
            for name, item in zip(nodes, (tree, number, str(mode), feature, value, *children, missing), strict=True):
                nodes[name].append(item)
            if node is None:
                leaves.append((tree, number))
    return nodes, leaves


def data(rng, rows, features, numbers, dtype=np.float32):
    x = rng.choice(numbers, (rows, features)) + rng.choice([0, 0, 0.25, -0.5], (rows, features))
    if np.dtype(dtype).kind == "f":
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.03] = np.inf
        x[rng.random(x.shape) < 0.03] = -np.inf
    return x.astype(dtype)


COMPARISONS = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal, np.isin]


def leaf_of(node, row):
    """By the definition: where the leaf is, by the number of what was not true at each node."""
    path = ()
    while node is not None:
        mode, feature, number, missing, sides = node
        compare = COMPARISONS[[*MODES, "BRANCH_MEMBER"].index(mode)]
        is_true = compare(row[feature], np.asarray(number, row.dtype)) or (missing and np.isnan(row[feature]))
        path = (*path, int(not is_true))
        node = sides[path[-1]]
    return path


def check(source, x, labels=False, tolerance=1e-6):
    wanted = onnxruntime.InferenceSession(source).run(None, {"x": x})
    got = list(tw.compile(tw.load(source)).run({"x": x}).values())
    for have, want in zip(got, wanted, strict=True):
        assert have.shape == want.shape and have.dtype == want.dtype
        if have.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance)
        elif labels:
            np.testing.assert_array_equal(have, want)
    return got


NUMBERS = np.array([-2.0, -1.0, -0.5, 0.0, -0.0, 0.1, 1.0, 3.0, 1e-45, np.inf, -np.inf])


@pytest.mark.parametrize("seed", range(12))
def test_regressors_of_random_trees(seed):
    rng = np.random.default_rng(seed)
    features, targets = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    modes = MODES if seed % 3 == 0 else [MODES[seed % 6]]
    trees = [random_tree(rng, features, int(rng.integers(0, 7)), modes, NUMBERS) for _ in range(rng.integers(1, 20))]
    nodes, leaves = listed(trees)
    entries = [(leaf, k, rng.normal()) for leaf in leaves for k in range(targets)]
    base = {"base_values": rng.normal(size=targets).tolist()} if seed % 2 else {}
    attributes = (
        nodes
        | base
        | {
            "target_treeids": [leaf[0] for leaf, _, _ in entries],
            "target_nodeids": [leaf[1] for leaf, _, _ in entries],
            "target_ids": [k for _, k, _ in entries],
            "target_weights": [w for _, _, w in entries],
            "n_targets": targets,
            "aggregate_function": ["SUM", "AVERAGE", "MIN", "MAX"][seed % 4],
        }
    )
    dtype = [np.float32, np.float64][seed % 2]
    for rows in (1, 7, 8, 61, 600):
        x = data(rng, rows, features, NUMBERS, dtype)
        check(model_of("TreeEnsembleRegressor", x, [("y", TensorProto.FLOAT)], 1 + 2 * (seed % 2), **attributes), x)


@pytest.mark.parametrize("form", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_classifiers_of_random_trees(form, classes):
    rng = np.random.default_rng(classes)
    nodes, leaves = listed([random_tree(rng, 4, 5, MODES, NUMBERS) for _ in range(6)])
    is_binary = classes == 2
    if is_binary and form == "PROBIT":
        return
    for sign in (0, 1):
        weights = np.abs(rng.random((len(leaves), classes))) / 6 - 0.2 * sign
        entries = [
            (leaf, k, weights[i, k]) for i, leaf in enumerate(leaves) for k in range(1 if is_binary else classes)
        ]
        attributes = nodes | {
            "class_treeids": [leaf[0] for leaf, _, _ in entries],
            "class_nodeids": [leaf[1] for leaf, _, _ in entries],
            "class_ids": [k for _, k, _ in entries],
            "class_weights": [w for _, _, w in entries],
            "classlabels_int64s": [7, -2, 5, 11, 0][:classes],
            "post_transform": form,
        }
        x = data(rng, 60, 4, NUMBERS)
        source = model_of(
            "TreeEnsembleClassifier", x, [("l", TensorProto.INT64), ("s", TensorProto.FLOAT)], 3, **attributes
        )
        check(source, x, labels=True, tolerance=2e-6 if form != "PROBIT" else 1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", [0, 1, 2, 3])
def test_ensembles_of_opset_5(dtype, function):
    """By the definition: ONNX Runtime has other results for sets, and sets of integers alone."""
    rng = np.random.default_rng(function)
    trees = []
    while len(trees) < 7:
        tree = random_tree(rng, 3, 5, [*MODES, "BRANCH_MEMBER"], NUMBERS)
        trees += [tree] if tree else []
    nodes = {name: [] for name in ("modes", "featureids", "missing_value_tracks_true")}
    nodes |= {name: [] for name in ("truenodeids", "falsenodeids", "trueleafs", "falseleafs")}
    splits, members, weights, weight_of, roots = [], [], [], {}, []

    def add(tree, node, path):
        if node is None:
            weights.append(rng.normal())
            weight_of[tree, path] = dtype(weights[-1])
            return len(weights) - 1, 1
        mode, feature, number, missing, sides = node
        at = len(splits)
        is_set = mode == "BRANCH_MEMBER"
        splits.append(0.0 if is_set else number)
        members.extend([*number, np.nan] if is_set else [])
        for name, item in (("modes", len(MODES) if is_set else MODES.index(mode)), ("featureids", feature)):
            nodes[name].append(item)
        nodes["missing_value_tracks_true"].append(missing)
        for name in ("truenodeids", "falsenodeids", "trueleafs", "falseleafs"):
            nodes[name].append(0)
        for side, child in zip(("true", "false"), (0, 1), strict=True):
            nodes[f"{side}nodeids"][at], nodes[f"{side}leafs"][at] = add(tree, sides[child], (*path, child))
        return at, 0

    roots = [add(tree, root, ())[0] for tree, root in enumerate(trees)]
    attributes = {f"nodes_{name}": list_ for name, list_ in nodes.items()}
    attributes["nodes_modes"] = numpy_helper.from_array(np.array(nodes["modes"], np.uint8), "modes")
    tensors = {"nodes_splits": splits, "leaf_weights": weights, "membership_values": members}
    attributes |= {name: numpy_helper.from_array(np.array(v, dtype), name) for name, v in tensors.items()}
    attributes |= {"leaf_targetids": [0] * len(weights), "tree_roots": roots}
    attributes |= {"aggregate_function": function, "n_targets": 1}
    x = data(rng, 50, 3, NUMBERS, dtype)
    given = np.array([[weight_of[tree, leaf_of(root, row)] for tree, root in enumerate(trees)] for row in x])
    wanted = [np.mean, np.sum, np.min, np.max][function](given, axis=1)
    source = model_of("TreeEnsemble", x, [("y", KINDS[x.dtype])], 5, **attributes)
    got = tw.compile(tw.load(source)).run({"x": x})["y"]
    assert got.shape == (50, 1) and got.dtype == dtype
    np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-6, atol=1e-6)


def stump(**changes):
    nodes, leaves = listed([("BRANCH_LEQ", 0, 0.5, 0, [None, None])])
    weights = {
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    return model_of("TreeEnsembleRegressor", np.zeros((1, 2), np.float32), [("y", 1)], 3, **(nodes | weights | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "TW1002.*a node is below itself"),
        ({"nodes_truenodeids": [7, 0, 0]}, "has no node 7"),
        ({"nodes_featureids": [2, 0, 0]}, "feature 2 of 2"),
        ({"nodes_featureids": [-1, 0, 0]}, "feature -1 of 2"),
        ({"target_ids": [0, 5]}, "column 5 of 1"),
        ({"target_nodeids": [1, 9]}, "has no node 9"),
        ({"nodes_values": [0.5]}, "nodes_values has 1 elements"),
        ({"nodes_nodeids": [0, 1, 1]}, "two nodes 1"),
        ({"nodes_modes": ["BRANCH_LIKE", "LEAF", "LEAF"]}, "TW1003.*a node of mode BRANCH_LIKE"),
        ({"base_values": [1.0, 2.0]}, "2 base_values for 1 columns"),
        ({"n_targets": 0}, "0 columns"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function=MEDIAN"),
    ],
)
def test_what_is_no_tree_is_refused(changes, message):
    with pytest.raises(tw.Error, match=f"(?s){message}"):
        tw.load(stump(**changes))


def test_a_tree_as_deep_as_it_has_nodes():
    """A list of 3,000 nodes; ONNX's own evaluator would be too slow."""
    count = 3000
    nodes = {
        "nodes_treeids": [0] * (2 * count + 1),
        "nodes_nodeids": list(range(2 * count + 1)),
        "nodes_modes": ["BRANCH_LEQ", "LEAF"] * count + ["LEAF"],
        "nodes_featureids": [0] * (2 * count + 1),
        "nodes_values": [float(i // 2) for i in range(2 * count + 1)],
        "nodes_truenodeids": [i + 1 if i % 2 == 0 and i < 2 * count else 0 for i in range(2 * count + 1)],
        "nodes_falsenodeids": [i + 2 if i % 2 == 0 and i < 2 * count else 0 for i in range(2 * count + 1)],
    }
    leaves = [i for i in range(2 * count + 1) if nodes["nodes_modes"][i] == "LEAF"]
    zeros = {"target_treeids": [0] * len(leaves), "target_ids": [0] * len(leaves), "n_targets": 1}
    x = np.array([[-1.0], [0.5], [17.0], [2998.5], [5000.0], [np.nan]], np.float32)
    weights = {"target_nodeids": leaves, "target_weights": [float(i) for i in range(len(leaves))]}
    source = model_of("TreeEnsembleRegressor", x, [("y", 1)], 3, **nodes, **zeros, **weights)
    got = tw.compile(tw.load(source)).run({"x": x})["y"]
    assert got[:, 0].tolist() == [0, 1, 17, 2999, 3000, 3000]


def test_any_number_of_rows():
    """None, fewer than walk side by side, and several tasks of them, in one executable and in one of its own."""
    rng = np.random.default_rng(3)
    nodes, leaves = listed([random_tree(rng, 4, 6, MODES, NUMBERS) for _ in range(21)])
    weights = {"target_treeids": [t for t, _ in leaves], "target_nodeids": [n for _, n in leaves]}
    weights |= {"target_ids": [0] * len(leaves), "target_weights": rng.normal(size=len(leaves)).tolist()}
    x = data(rng, 1500, 4, NUMBERS)
    source = model_of("TreeEnsembleRegressor", x, [("y", TensorProto.FLOAT)], 3, **nodes, **weights, n_targets=1)
    every = tw.compile(tw.load(source, shapes={"x": (tw.Dim("rows", 0), 4)}))
    wanted = every.run({"x": x})["y"]
    np.testing.assert_allclose(
        wanted, onnxruntime.InferenceSession(source).run(None, {"x": x})[0], rtol=1e-6, atol=1e-6
    )
    for rows in (0, 1, 2, 7, 8, 9, 127, 130, 513):
        np.testing.assert_array_equal(every.run({"x": x[:rows]})["y"], wanted[:rows])
    for rows in (1, 13):
        of_size = tw.compile(tw.load(source, shapes={"x": (rows, 4)}))
        np.testing.assert_array_equal(of_size.run({"x": x[:rows]})["y"], wanted[:rows])
