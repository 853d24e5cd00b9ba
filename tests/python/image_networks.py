"""Small networks over images of 3 x 13 x 13, whose results are y and b; weights come from numbers(rng, *shape)."""

import numpy as np

from conftest import model_of, value


def shuffled(numbers):
    """Channels that are joined, some of them within blocks of 8, and dealt out to groups again."""
    rng = np.random.default_rng(1)
    return model_of(
        [
            ("Conv", ["x", "w1"], ["a"], {"pads": [1] * 4}),
            ("Conv", ["a", "w2"], ["b"], {}),
            ("Conv", ["a", "w3"], ["c"], {"pads": [1] * 4}),
            ("Concat", ["b", "a", "c"], ["d"], {"axis": 1}),
            ("Relu", ["d"], ["e"]),
            ("Reshape", ["e", "groups"], ["f"]),
            ("Transpose", ["f"], ["g"], {"perm": [0, 2, 1, 3, 4]}),
            ("Reshape", ["g", "channels"], ["h"]),
            ("Split", ["h", "halves"], ["i", "j"], {"axis": 1}),
            ("Conv", ["i", "w4"], ["k"], {}),
            ("Concat", ["j", "k"], ["l"], {"axis": 1}),
            ("Conv", ["l", "w5"], ["y"], {}),
        ],
        [value("x", [1, 3, 13, 13])],
        [value("y", [1, 8, 13, 13]), value("b", [1, 16, 13, 13])],
        {
            "w1": numbers(rng, 32, 3, 3, 3),
            "w2": numbers(rng, 16, 32, 1, 1),
            "w3": numbers(rng, 32, 32, 3, 3),
            "w4": numbers(rng, 24, 40, 1, 1),
            "w5": numbers(rng, 8, 64, 1, 1),
            "groups": np.array([1, 2, 40, 13, 13]),
            "channels": np.array([1, 80, 13, 13]),
            "halves": np.array([40, 40]),
        },
    )


def separable(numbers):
    """Depthwise convolutions and pools between products, as in MobileNet."""
    rng = np.random.default_rng(2)
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    return model_of(
        [
            ("Conv", ["x", "w1"], ["a"], {"pads": [1] * 4}),
            ("Relu", ["a"], ["c"]),
            ("Conv", ["c", "w2"], ["d"], {"pads": [2] * 4, "group": 24}),
            ("HardSwish", ["d"], ["e"]),
            ("AveragePool", ["e"], ["f"], pool),
            ("Conv", ["f", "w3"], ["g"]),
            ("Add", ["g", "f"], ["h"]),
            ("Conv", ["h", "w4"], ["i"], {"group": 24, "strides": [2, 2]}),
            ("Conv", ["i", "w5"], ["b"]),
            ("MaxPool", ["b"], ["y"], {"kernel_shape": [2, 2]}),
        ],
        [value("x", [1, 3, 13, 13])],
        [value("y", [1, 40, 2, 2]), value("b", [1, 40, 3, 3])],
        {
            "w1": numbers(rng, 24, 3, 3, 3),
            "w2": numbers(rng, 24, 1, 5, 5),
            "w3": numbers(rng, 24, 24, 1, 1),
            "w4": numbers(rng, 24, 1, 3, 3),
            "w5": numbers(rng, 40, 24, 1, 1),
        },
    )


def decoder(numbers):
    """Transposed convolutions, as where maps grow again."""
    rng = np.random.default_rng(3)
    return model_of(
        [
            ("Conv", ["x", "w1"], ["b"], {"pads": [1] * 4}),
            ("ConvTranspose", ["b", "w2", "bias"], ["c"], {"strides": [2, 2], "pads": [1] * 4}),
            ("Relu", ["c"], ["d"]),
            ("ConvTranspose", ["d", "w3"], ["e"], {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
            ("ConvTranspose", ["e", "w4"], ["y"], {"strides": [3, 2], "group": 4}),
        ],
        [value("x", [1, 3, 13, 13])],
        [value("y", [1, 8, 156, 104]), value("b", [1, 24, 13, 13])],
        {
            "w1": numbers(rng, 24, 3, 3, 3),
            "w2": numbers(rng, 24, 16, 4, 4),
            "bias": numbers(rng, 16),
            "w3": numbers(rng, 16, 32, 3, 3),
            "w4": numbers(rng, 32, 2, 3, 2),
        },
    )


def tokens(numbers):
    """Rows of tokens between images, as in SegFormer."""
    rng = np.random.default_rng(4)
    return model_of(
        [
            ("Conv", ["x", "w1"], ["image"], {"pads": [1] * 4}),
            ("Reshape", ["image", "rows"], ["flat"]),
            ("Transpose", ["flat"], ["tokens"], {"perm": [0, 2, 1]}),
            ("LayerNormalization", ["tokens", "scale", "bias"], ["normal"]),
            ("MatMul", ["normal", "w2"], ["wide"]),
            ("Transpose", ["wide"], ["turned"], {"perm": [0, 2, 1]}),
            ("Reshape", ["turned", "again"], ["maps"]),
            ("Conv", ["maps", "w3"], ["b"], {"pads": [1] * 4, "group": 48}),
            ("Reshape", ["b", "wide_rows"], ["flat2"]),
            ("Transpose", ["flat2"], ["tokens2"], {"perm": [0, 2, 1]}),
            ("Relu", ["tokens2"], ["active"]),
            ("MatMul", ["active", "w4"], ["narrow"]),
            ("Add", ["narrow", "tokens"], ["y"]),
        ],
        [value("x", [1, 3, 13, 13])],
        [value("y", [1, 169, 32]), value("b", [1, 48, 13, 13])],
        {
            "w1": numbers(rng, 32, 3, 3, 3),
            "rows": np.array([1, 32, 169]),
            "scale": np.ones(32, np.float32),
            "bias": numbers(rng, 32),
            "w2": numbers(rng, 32, 48),
            "again": np.array([1, 48, 13, 13]),
            "w3": numbers(rng, 48, 1, 3, 3),
            "wide_rows": np.array([1, 48, 169]),
            "w4": numbers(rng, 48, 32),
        },
    )
