"""Attention as ONNX Runtime's optimiser fuses it (com.microsoft), beside ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tilewright as tw

RNG = np.random.default_rng(21)
BATCH, ROWS, HEADS, SIZE = 2, 5, 3, 4
HIDDEN = HEADS * SIZE


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of_node(op, feed, outputs=1, constants=(), open_dimensions=(), **attributes):
    """A node of com.microsoft on named arrays, None where an input is absent; dimensions of these sizes are open."""
    kinds = {name: numpy_helper.from_array(array).data_type for name, array in feed.items() if array is not None}
    names = {size: f"size{size}" for size in open_dimensions}
    inputs = [
        helper.make_tensor_value_info(name, kinds[name], [names.get(size, size) for size in array.shape])
        for name, array in feed.items()
        if array is not None and name not in constants
    ]
    tensors = [numpy_helper.from_array(feed[name], name) for name in constants]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(
        op, [name if array is not None else "" for name, array in feed.items()], results, domain="com.microsoft",
        **attributes,
    )  # fmt: skip
    given = [helper.make_value_info(name, onnx.TypeProto()) for name in results]
    graph = helper.make_graph([node], "g", inputs, given, tensors)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(op, feed, outputs=1, constants=(), open_dimensions=(), **attributes):
    model = model_of_node(op, feed, outputs, constants, open_dimensions, **attributes)
    given = {name: array for name, array in feed.items() if array is not None and name not in constants}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    results = tw.compile(model).run(given)
    for name, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def three(rows=ROWS, keys=ROWS, size=SIZE):
    return {"q": floats(BATCH, rows, HIDDEN), "k": floats(BATCH, keys, HIDDEN), "v": floats(BATCH, keys, HEADS * size)}


BIAS = floats(3 * HIDDEN)
LENGTHS = np.array([3, 5], np.int32)
KEY_MASK = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], np.int32)
FULL_MASK = RNG.integers(0, 2, (BATCH, ROWS, ROWS)).astype(np.int32)
ADDED = floats(1, HEADS, ROWS, ROWS)


@pytest.mark.parametrize("mask", [None, LENGTHS, KEY_MASK, FULL_MASK], ids=["none", "lengths", "keys", "full"])
@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}, {"scale": 0.3, "mask_filter_value": -3.0}])
def test_multi_head_attention(mask, options):
    check("MultiHeadAttention", {**three(), "bias": BIAS, "mask": mask, "added": ADDED}, num_heads=HEADS, **options)


def test_multi_head_attention_of_packed_inputs():
    """Of which ONNX Runtime has no kernels for CPUs."""
    apart = three()
    heads = {name: array.reshape(BATCH, ROWS, HEADS, SIZE) for name, array in apart.items()}
    same = model_of_node("MultiHeadAttention", apart, num_heads=HEADS)
    (expected,) = onnxruntime.InferenceSession(same.SerializeToString()).run(None, apart)
    for feed in (
        {"q": np.stack([heads["q"], heads["k"], heads["v"]], 3)},
        {"q": apart["q"], "kv": np.stack([heads["k"], heads["v"]], 3)},
    ):
        y = tw.compile(model_of_node("MultiHeadAttention", feed, num_heads=HEADS)).run(feed)["y0"]
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_multi_head_attention_to_other_keys():
    check("MultiHeadAttention", three(keys=7, size=6), num_heads=HEADS)


@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}])
@pytest.mark.parametrize("open_dimensions", [(), (BATCH, 6)], ids=["fixed", "open"])
def test_multi_head_attention_with_a_cache(options, open_dimensions):
    past = {"past_k": floats(BATCH, HEADS, 6, SIZE), "past_v": floats(BATCH, HEADS, 6, SIZE)}
    feed = {**three(), "bias": BIAS, "mask": None, "added": None, **past}
    check("MultiHeadAttention", feed, 3, open_dimensions=open_dimensions, num_heads=HEADS, **options)


def test_multi_head_attention_over_keys_that_are_a_cache():
    feed = {"q": floats(BATCH, ROWS, HIDDEN), "k": floats(BATCH, HEADS, 7, SIZE), "v": floats(BATCH, HEADS, 7, SIZE)}
    check("MultiHeadAttention", {**feed, "bias": BIAS}, num_heads=HEADS)


ENDS = np.array([4, 5, 1, 0], np.int32)  # of keys, then their begins


@pytest.mark.parametrize(
    "mask", [None, LENGTHS, ENDS, KEY_MASK, FULL_MASK], ids=["none", "lengths", "ends", "keys", "full"]
)
@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}, {"scale": 0.3}])
def test_attention_behind_its_projections(mask, options):
    feed = {"x": floats(BATCH, ROWS, 10), "w": floats(10, 3 * HIDDEN) / 3, "bias": BIAS, "mask": mask}
    check("Attention", feed, constants=("w", "bias"), num_heads=HEADS, **options)


def test_attention_with_a_cache_and_results_of_another_size():
    feed = {"x": floats(BATCH, ROWS, 10), "w": floats(10, 3 * HIDDEN) / 3, "bias": BIAS, "mask": None}
    feed["past"] = floats(2, BATCH, HEADS, 6, SIZE)
    check("Attention", feed, 2, constants=("w", "bias"), num_heads=HEADS, unidirectional=1)
    sizes = [HIDDEN, HIDDEN, 2 * HIDDEN]
    feed = {"x": floats(BATCH, ROWS, 10), "w": floats(10, sum(sizes)) / 3, "bias": floats(sum(sizes))}
    check("Attention", feed, constants=("w", "bias"), num_heads=HEADS, qkv_hidden_sizes=sizes)


def tables(pairs):
    angles = np.outer(np.arange(16), 0.3 ** np.arange(pairs))
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def grouped(past, packed=False, lengths=None, size=16, batch=1, rows=ROWS):
    """6 query heads over 2 of the cache.  (Rows behind a cache: ONNX Runtime takes a batch of one, or one row.)"""
    q, k, v = floats(batch, rows, 6 * size), floats(batch, rows, 2 * size), floats(batch, rows, 2 * size)
    feed = {"q": np.concatenate([q, k, v], 2)} if packed else {"q": q, "k": k, "v": v}
    if packed:
        feed |= {"k": None, "v": None}
    total = past + rows
    feed["past_k"], feed["past_v"] = floats(batch, 2, past, size), floats(batch, 2, past, size)
    feed["last"] = np.full(batch, total - 1, np.int32) if lengths is None else np.asarray(lengths, np.int32)
    feed["total"] = np.array(total, np.int32)
    return feed


@pytest.mark.parametrize("packed", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("options", [{}, {"local_window_size": 3}, {"scale": 0.2}])
@pytest.mark.parametrize("rotary", [None, 0, 1], ids=["plain", "halves", "pairs"])
def test_group_query_attention(packed, options, rotary):
    feed = grouped(6, packed)
    if rotary is not None:
        feed |= tables(8)
        options = {**options, "do_rotary": 1, "rotary_interleaved": rotary}
    check("GroupQueryAttention", feed, 3, num_heads=6, kv_num_heads=2, **options)
    token = {**grouped(6, packed, batch=3, rows=1), **(tables(8) if rotary is not None else {})}
    check("GroupQueryAttention", token, 3, num_heads=6, kv_num_heads=2, **options)


def test_group_query_attention_of_a_prompt_with_padding():
    feed = grouped(0, lengths=[2, ROWS - 1], batch=2)
    del feed["past_k"], feed["past_v"]
    feed = {**dict(list(feed.items())[:3]), "past_k": None, "past_v": None, **dict(list(feed.items())[3:])}
    model = model_of_node("GroupQueryAttention", feed, 3, num_heads=6, kv_num_heads=2)
    given = {name: array for name, array in feed.items() if array is not None}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)[0]
    y = tw.compile(model).run(given)["y0"]
    for row, last in enumerate([2, ROWS - 1]):  # what is behind it is nobody's
        np.testing.assert_allclose(y[row, : last + 1], expected[row, : last + 1], rtol=1e-4, atol=1e-5)


def test_group_query_attention_with_open_sizes_and_what_does_not_fit():
    feed = grouped(6)
    check("GroupQueryAttention", feed, 3, open_dimensions=(1, 6), num_heads=6, kv_num_heads=2)
    model = model_of_node("GroupQueryAttention", feed, 3, num_heads=6, kv_num_heads=2)
    executable = tw.compile(model)
    for wrong in ({"total": np.array(9, np.int32)}, {"last": np.array([7], np.int32)}):
        with pytest.raises(tw.Error, match="TW1101"):
            executable.run({**feed, **wrong})


ROOM = 16
BEHIND = {"cos": None, "sin": None, "positions": None, "bias": None}  # inputs before the sink


@pytest.mark.parametrize("options", [{"softcap": 1.5}, {"smooth_softmax": 1}, {"softcap": 3.0, "smooth_softmax": 1}])
@pytest.mark.parametrize("open_dimensions", [(), (1, 6)], ids=["fixed", "open"])
def test_group_query_attention_with_other_scores(options, open_dimensions):
    check("GroupQueryAttention", grouped(6), 3, open_dimensions=open_dimensions, num_heads=6, kv_num_heads=2, **options)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"local_window_size": 3}])
def test_group_query_attention_with_a_sink(options):
    feed = {**grouped(6), **BEHIND, "sink": floats(6)}
    check("GroupQueryAttention", feed, 3, constants=("sink",), num_heads=6, kv_num_heads=2, **options)


def with_room(last, total, rows, open_batch=False, **attributes):
    """A model whose cache has ROOM places, a feed for it, and what ONNX Runtime makes of these in one array."""
    batch = len(last)
    feed = grouped(ROOM - rows, lengths=last, batch=batch, rows=rows)
    feed["past_k"], feed["past_v"] = floats(batch, 2, ROOM, 16), floats(batch, 2, ROOM, 16)
    feed["total"] = np.array(total, np.int32)
    if attributes.get("do_rotary"):
        feed |= tables(8)
    model = model_of_node("GroupQueryAttention", feed, 3, num_heads=6, kv_num_heads=2, **attributes)
    for past, output in zip(("past_k", "past_v"), model.graph.output[1:], strict=True):
        output.CopyFrom(next(each for each in model.graph.input if each.name == past))
    for output, name in zip(model.graph.output, ("y0", "y1", "y2"), strict=True):
        output.name = name
    kept = {name: array.copy() for name, array in feed.items()}
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in kept.items()}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    for name, array in values.items():
        binding.bind_ortvalue_input(name, array)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", values["past_k"])
    binding.bind_ortvalue_output("y2", values["past_v"])
    session.run_with_iobinding(binding)
    return model, feed, [binding.get_outputs()[0].numpy(), kept["past_k"], kept["past_v"]]


@pytest.mark.parametrize(
    ("last", "total", "rows"),
    [([9], 10, 1), ([9, 4, 15], 16, 1), ([9], 10, 5), ([4, 2], 5, 5), ([ROOM - 1], ROOM, ROOM), ([0], 1, 1)],
    ids=["token", "tokens", "more", "prompts", "full", "first"],
)
@pytest.mark.parametrize(
    "attributes", [{}, {"do_rotary": 1}, {"softcap": 2.0}, {"smooth_softmax": 1, "local_window_size": 3}], ids=str
)
def test_group_query_attention_with_room(last, total, rows, attributes):
    model, feed, (y, *caches) = with_room(last, total, rows, **attributes)
    in_place = {"y1": "past_k", "y2": "past_v"}
    for pairs in (None, in_place):
        given = {name: array.copy() for name, array in feed.items()}
        results = tw.compile(model, in_place=pairs).run(given)
        assert (results["y1"] is given["past_k"]) == (pairs is not None)
        for sequence, end in enumerate(last):
            valid = min(rows, end + 1)  # what is behind it is nobody's
            np.testing.assert_allclose(
                results["y0"][sequence, :valid], y[sequence, :valid], rtol=1e-4, atol=1e-5, err_msg=str(pairs)
            )
            for name, cache in zip(("y1", "y2"), caches, strict=True):
                np.testing.assert_allclose(
                    results[name][sequence, :, : end + 1], cache[sequence, :, : end + 1], rtol=1e-5, atol=1e-6
                )


def test_a_cache_with_room_in_a_loop_of_tokens():
    """As a script decodes: one executable of one row, whose cache is one array, beside attention over all rows."""
    model, feed, _ = with_room([0], 1, 1)
    executable = tw.compile(model, in_place={"y1": "past_k", "y2": "past_v"})
    tokens = [grouped(0) for _ in range(ROOM)]
    cache = {name: np.full_like(feed[name], np.nan) for name in ("past_k", "past_v")}
    for position, token in enumerate(tokens):
        step = {name: token[name][:, :1] for name in ("q", "k", "v")}
        step |= {"last": np.array([position], np.int32), "total": np.array(position + 1, np.int32), **cache}
        y = executable.run(step)["y0"]
    q, k, v = (np.concatenate([token[name][:, :1] for token in tokens], 1) for name in ("q", "k", "v"))
    whole = {"q": q, "k": k, "v": v, "past_k": None, "past_v": None,
             "last": np.array([ROOM - 1], np.int32), "total": np.array(ROOM, np.int32)}  # fmt: skip
    same = model_of_node("GroupQueryAttention", whole, 3, num_heads=6, kv_num_heads=2)
    given = {name: array for name, array in whole.items() if array is not None}
    expected = onnxruntime.InferenceSession(same.SerializeToString()).run(None, given)[0]
    np.testing.assert_allclose(y[:, 0], expected[:, -1], rtol=1e-4, atol=1e-5)
    step["last"] = np.array([ROOM], np.int32)
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run(step)
    step |= {"last": np.array([3], np.int32), "total": np.array(ROOM + 1, np.int32)}
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run(step)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([3]), RNG.integers(0, 16, (BATCH, ROWS))], ids=["first", "each"])
def test_rotary_embedding(interleaved, positions):
    whole, part = ({"positions": positions, **tables(pairs)} for pairs in (4, 2))
    check("RotaryEmbedding", {"x": floats(BATCH, ROWS, 24), **whole}, interleaved=interleaved)
    check("RotaryEmbedding", {"x": floats(BATCH, HEADS, ROWS, 8), **whole}, interleaved=interleaved)
    check("RotaryEmbedding", {"x": floats(BATCH, ROWS, 24), **part}, interleaved=interleaved, num_heads=3,
          rotary_embedding_dim=4)  # fmt: skip


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_embed_layer_normalization(segments, positions):
    words = RNG.integers(0, 9, (BATCH, ROWS)).astype(np.int32)
    feed = {
        "words": words,
        "segments": RNG.integers(0, 2, (BATCH, ROWS)).astype(np.int32) if segments else None,
        "word_table": floats(9, 6),
        "position_table": floats(8, 6),
        "segment_table": floats(2, 6) if segments else None,
        "gamma": floats(6),
        "beta": floats(6),
        "mask": np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]], np.int32),
        "positions": RNG.integers(0, 8, (BATCH, ROWS)).astype(np.int32) if positions else None,
    }
    check("EmbedLayerNormalization", feed, 3, epsilon=1e-6)


def test_forms_that_are_missing_are_refused():
    cases = [
        ("MultiHeadAttention", {"q": floats(2, 5, 12)}, {"num_heads": 3}, "without key"),
        ("GroupQueryAttention", grouped(6), {"num_heads": 6, "kv_num_heads": 2, "qk_output": 1}, "qk_output"),
        ("GroupQueryAttention", grouped(6), {"num_heads": 6, "kv_num_heads": 2, "kv_cache_bit_width": 8}, "bit_width"),
    ]
    for op, feed, attributes, why in cases:
        with pytest.raises(tw.Error, match=f"(?s)TW1003.*{why}"):
            tw.load(model_of_node(op, feed, 1, **attributes))


@pytest.mark.parametrize("rotary", [0, 1])
def test_group_query_attention_of_heads_that_are_normalised(rotary):
    """For which ONNX Runtime has no kernel on CPUs: it gets heads that are normalised before."""
    q_weight, k_weight, epsilon = floats(16), floats(16), 0.05

    def normalised(x, weight):
        heads = x.reshape(*x.shape[:2], -1, 16)
        heads = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weight
        return heads.reshape(x.shape)

    feed = {**grouped(6), **(tables(8) if rotary else {"cos": None, "sin": None})}
    options = {"num_heads": 6, "kv_num_heads": 2, "do_rotary": rotary}
    before = {**feed, "q": normalised(feed["q"], q_weight), "k": normalised(feed["k"], k_weight)}
    given = {name: array for name, array in before.items() if array is not None}
    plain = model_of_node("GroupQueryAttention", before, 3, **options)
    expected = onnxruntime.InferenceSession(plain.SerializeToString()).run(None, given)
    absent = dict.fromkeys(("positions", "bias", "sink", "k_scale", "v_scale"))
    feed = {**feed, **absent, "q_norm": q_weight, "k_norm": k_weight}
    model = model_of_node("GroupQueryAttention", feed, 3, qk_norm_epsilon=epsilon, **options)
    results = tw.compile(model).run({name: array for name, array in feed.items() if array is not None})
    for name, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)
