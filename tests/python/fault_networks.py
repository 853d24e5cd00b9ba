"""A network of forty nodes with faults to be found in it: convolutions, attention, normalisations, residual sums."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, SIZE = 8, 6
LENGTH = SIZE * SIZE

# fault → the node that it is put into
FAULTS = {
    "wrong_constant": "scale2",
    "wrong_rounding": "expand",
    "wrong_axis": "weigh",
    "wrong_epsilon": "norm2",
    "swapped_operand": "centre",
}


class Named:
    """Nodes that are called as what they give."""

    def __init__(self, seed=0):
        self.rng, self.nodes, self.tensors = np.random.default_rng(seed), [], []

    def __call__(self, operator, name, *inputs, **attributes):
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name, array):
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name, *shape):
        array = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return self.constant(name, array.astype(np.float32))

    def vector(self, name, size, around=0.0):
        return self.constant(name, (around + 0.3 * self.rng.standard_normal(size)).astype(np.float32))

    def batch_norm(self, name, x):
        parameters = [self.vector(f"{name}.{k}", CHANNELS, k == "scale") for k in ("scale", "bias", "mean")]
        variance = self.constant(f"{name}.variance", self.rng.uniform(0.5, 2, CHANNELS).astype(np.float32))
        return self("BatchNormalization", name, x, *parameters, variance)

    def conv(self, name, x, inputs=CHANNELS):
        return self("Conv", name, x, self.weight(f"{name}.weight", CHANNELS, inputs, 3, 3), pads=[1, 1, 1, 1])

    def linear(self, name, x, inputs, outputs):
        product = self("MatMul", name, x, self.weight(f"{name}.weight", inputs, outputs))
        return self("Add", f"{name}_bias", product, self.vector(f"{name}.bias", outputs))

    def layer_norm(self, name, x):
        scale, bias = self.vector(f"{name}.scale", CHANNELS, 1), self.vector(f"{name}.bias", CHANNELS)
        return self("LayerNormalization", name, x, scale, bias, axis=-1, epsilon=1e-3)


def network():
    """Input x f32[1,3,6,6], output y f32[1,36,8]; 40 nodes."""
    n = Named()
    stem = n("Relu", "relu1", n.batch_norm("scale1", n.conv("conv1", "x", 3)))
    body = n("Relu", "relu2", n.batch_norm("scale2", n.conv("conv2", stem)))
    body = n.batch_norm("scale3", n.conv("conv3", body))
    x = n("Relu", "relu3", n("Add", "residual1", body, stem))
    mean = n("GlobalAveragePool", "mean", x)
    x = n("Sub", "centre", x, mean)
    x = n("Reshape", "flat", x, n.constant("rows", np.array([1, CHANNELS, LENGTH])))
    x = n("Transpose", "tokens", x, perm=[0, 2, 1])
    normed = n.layer_norm("norm1", x)
    q, k, v = (n.linear(name, normed, CHANNELS, CHANNELS) for name in ("query", "key", "value"))
    scores = n("MatMul", "scores", q, n("Transpose", "key_t", k, perm=[0, 2, 1]))
    scaled = n("Div", "scaled", scores, n.constant("root", np.float32(np.sqrt(CHANNELS))))
    # More than scaled dot products, so that it stays a softmax.
    capped = n("Tanh", "capped", scaled)
    mixed = n("MatMul", "mixed", n("Softmax", "weigh", capped, axis=-1), v)
    x = n("Add", "residual2", n.linear("project", mixed, CHANNELS, CHANNELS), x)
    x = n("Mul", "shrink", x, n.constant("tenth", np.float32(0.1)))
    normed = n.layer_norm("norm2", x)
    wide = n.linear("expand", normed, CHANNELS, 2 * CHANNELS)
    gate = n("Mul", "swish", wide, n("Sigmoid", "gate", wide))
    x = n("Add", "residual3", n.linear("contract", gate, 2 * CHANNELS, CHANNELS), x)
    n("Softplus", "y", x)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, LENGTH, CHANNELS])]
    graph = helper.make_graph(n.nodes, "network", inputs, outputs, initializer=n.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
