"""Valid uses of operators, made from the models of ONNX's suite by changing them at random.

A mutant is a model of one node (or of a function's body) with other extents, element types, attributes, values and
constants, after and before up to three cheap nodes: moves, casts, broadcasts.  ONNX Runtime says which are valid.
What ONNX leaves open is not drawn: mutant_seeds.py has the rules.
"""

import math
import random
from collections import defaultdict

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mutant_neighbours import FOLLOWERS
from mutant_seeds import (
    CONSTANT_PARAMETERS,
    DISTINCT,
    FLOATS,
    INTS,
    KEPT,
    MANY_STEPS,
    NOT_HUGE,
    ORDINARY,
    ORDINARY_PROFILES,
    PROFILES,
    change_attribute,
    corpus,
    fill,
    has_repeated_updates,
    is_open_reduction,
    is_wrong_there,
    matches,
)
from onnx_suite import given_inputs
from random_graphs import REFUSED, Sizes, run_onnxruntime

ONNX_NAMES = {"float32": "float", "float64": "double"}
ATTEMPTS = 4
INVALID = (*REFUSED, ValueError, IndexError, TypeError, OverflowError, AttributeError, KeyError)


class Mutant:
    """What a seed makes: a model and its inputs.  Raises what ONNX Runtime raises, if it is not valid."""

    def __init__(self, seed, attempt, small):
        self.rng = rng = random.Random(f"{seed} {attempt}")
        self.boldness = 3 - attempt
        self.sizes = Sizes(rng.randrange(2**32), 9 if small else 70, 800 if small else 20_000)
        self.small = small
        choice = random.Random(seed)  # every attempt is one at the same seed
        operators = sorted(corpus())
        op = choice.choice([o for o in operators if o.startswith("body of ") == (choice.random() < 0.1)])
        self.case = choice.choice(corpus()[op])
        self.model = onnx.ModelProto()
        self.model.CopyFrom(self.case.model)
        self.graph = self.model.graph
        self.inputs = [np.array(a) for a in self.case.inputs]
        self.infos = given_inputs(self.model)[: len(self.inputs)]
        self.opsets = {o.domain: o.version for o in self.model.opset_import}
        self.opset = self.opsets.get("", 0)
        self.node = self.graph.node[0]
        self.is_ordinary = any(matches(ORDINARY, n.op_type) for n in self.graph.node)
        self.roles = self.find_roles()
        self.constants = {}
        if self.boldness > 0:
            self.change()
        self.chain()
        self.finish()

    # --- what the inputs are

    def find_roles(self):
        """Of each input: data, index, or parameter (a few numbers that say what to do)."""
        roles = []
        formal = {}
        if self.case.is_node:
            schema = onnx.defs.get_schema(self.node.op_type, self.opsets.get(self.node.domain, 1), self.node.domain)
            constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
            for i, name in enumerate(self.node.input):
                p = schema.inputs[min(i, len(schema.inputs) - 1)] if schema.inputs else None
                formal[name] = (p.type_str, constraints.get(p.type_str, [p.type_str])) if p else ("", [])
        self.formal = formal
        for info, a in zip(self.infos, self.inputs, strict=True):
            allowed = formal.get(info.name, ("", []))[1]
            takes_floats = any("float" in t for t in allowed)
            if self.case.op.startswith(("Resize", "Upsample", "Range")) and info is not self.infos[0]:
                roles.append("parameter")
            elif a.dtype.kind not in "iu" or takes_floats or a.dtype.itemsize == 1:
                roles.append("data" if takes_floats or a.dtype.kind not in "iu" or allowed else "index")
            elif a.ndim <= 1 and a.size <= 8:
                roles.append("parameter")
            else:
                roles.append("index")
        return roles

    # --- changes

    def change(self):
        rng = self.rng
        if rng.random() < 0.35:
            self.change_types()
        old = [a.shape for a in self.inputs]
        if rng.random() < 0.85:
            self.change_extents()
        if self.boldness > 1 and rng.random() < 0.25:
            self.change_broadcasting()
        if self.boldness > 1 and self.case.is_node and rng.random() < 0.45:
            self.change_attributes()
        self.change_values(old)

    def change_types(self):
        groups = defaultdict(list)
        for k, info in enumerate(self.infos):
            if info.name in self.formal and self.roles[k] != "parameter":
                groups[self.formal[info.name][0]].append(k)
        for _, members in sorted(groups.items()):
            allowed = self.formal[self.infos[members[0]].name][1]
            kinds = [k for k in [*FLOATS, *INTS] if f"tensor({ONNX_NAMES.get(k, k)})" in allowed]
            now = self.inputs[members[0]].dtype
            same = [
                k for k in kinds if np.dtype(k).kind in ("f" if now.kind == "f" else "iu") or self.rng.random() < 0.1
            ]
            if now.kind in "fiu" and same:
                dtype = np.dtype(self.rng.choice(same))
                for k in members:
                    with np.errstate(all="ignore"):
                        self.inputs[k] = self.inputs[k].astype(dtype)

    def change_extents(self):
        rng = self.rng
        is_data = [r != "parameter" for r in self.roles]
        extents = sorted({d for a, data in zip(self.inputs, is_data, strict=True) if data for d in a.shape})
        renamed = {}
        for d in extents:
            divisors = [e for e in extents if 1 < e < d and d % e == 0]
            if d == 0 or (d == 1 and rng.random() < 0.85):
                renamed[d] = d
            elif divisors and rng.random() < 0.75:
                e = rng.choice(divisors)
                renamed[d] = renamed[e] * (d // e)
            elif rng.random() < 0.15:
                renamed[d] = d
            else:
                renamed[d] = self.sizes.extent()
        largest = self.sizes.elements
        shapes = [a.shape for a, data in zip(self.inputs, is_data, strict=True) if data]
        while any(math.prod(renamed[d] for d in s) > max(largest, math.prod(s)) for s in shapes):
            d = max(renamed, key=lambda d: renamed[d] / d if d else 0)
            if renamed[d] <= 1:
                break
            renamed[d] = max(1, renamed[d] // 2)
        self.renamed = renamed
        for k, a in enumerate(self.inputs):
            if is_data[k]:
                self.inputs[k] = np.resize(a, [renamed[d] for d in a.shape]) if a.size else a
            elif a.dtype.kind in "iu" and self.infos[k].name not in ("axes", "steps", "pads", "k"):
                self.inputs[k] = np.array([renamed.get(int(v), int(v)) for v in a.ravel()], a.dtype).reshape(a.shape)
        for node in self.graph.node:
            for a in node.attribute:
                if a.name in ("kernel_shape", "output_shape", "shape", "image_shape", "block_shape"):
                    ints = [renamed.get(v, v) for v in a.ints]
                    del a.ints[:]
                    a.ints.extend(ints)
                elif a.name in ("hidden_size", "q_num_heads", "kv_num_heads", "num_heads", "num_groups", "group"):
                    a.i = renamed.get(a.i, a.i)

    def change_broadcasting(self):
        rng = self.rng
        data = [k for k, r in enumerate(self.roles) if r == "data" and self.inputs[k].ndim]
        if not data:
            return
        k = rng.choice(data)
        shape = list(self.inputs[k].shape)
        if rng.random() < 0.5:
            shape[rng.randrange(len(shape))] = 1
        else:
            shape = shape[rng.randint(1, len(shape)) :]
        self.inputs[k] = np.resize(self.inputs[k], shape) if self.inputs[k].size else self.inputs[k]

    def change_attributes(self):
        rng = self.rng
        ranks = [a.ndim for a in self.inputs]
        attributes = list(self.node.attribute)
        for a in attributes:
            if rng.random() < 1 / len(attributes):
                if rng.random() < 0.15 and a.name not in KEPT:
                    self.node.attribute.remove(a)
                else:
                    change_attribute(rng, self.node, a, ranks)
        if rng.random() < 0.3:
            schema = onnx.defs.get_schema(self.node.op_type, self.opsets.get(self.node.domain, 1), self.node.domain)
            there = {a.name for a in attributes} | set(KEPT)
            missing = [a for n, a in sorted(schema.attributes.items()) if n not in there and a.default_value.name]
            if missing:
                a = self.node.attribute.add()
                a.CopyFrom(rng.choice(missing).default_value)
                change_attribute(rng, self.node, a, ranks)

    def change_values(self, old):
        rng = self.rng
        profile = rng.choice(ORDINARY_PROFILES if self.is_ordinary else PROFILES)
        op = self.node.op_type
        is_far = profile == "huge" or (profile == "tiny" and not self.small)
        if is_far and any(matches(NOT_HUGE, n.op_type) for n in self.graph.node):
            profile = "large"
        extents = [d for a, r in zip(self.inputs, self.roles, strict=True) if r == "data" for d in a.shape]
        reach = min(extents, default=1)
        for k, a in enumerate(self.inputs):
            if self.roles[k] == "parameter" or a.size == 0:
                continue
            mine = profile if rng.random() < 0.8 else "normal"
            if op in DISTINCT:
                mine = "distinct"
            elif op == "Pow" and any(x.dtype.kind in "iu" for x in self.inputs):
                mine = "unit" if a.dtype.kind == "f" else "small"  # what overflows is open
            elif a.dtype.kind in "iu" and self.is_ordinary:
                mine = "positive"
            if self.roles[k] == "data":
                if a.shape == old[k] and rng.random() < 0.15:
                    continue
                if a.dtype.kind == "f" and self.is_ordinary and (a > 0).all():
                    mine = "positive"  # scales, lengths, variances
                if op == "Loop" and a.dtype == bool:
                    continue  # known: without a step, sizes that steps compute are 0, not as the body declares them
                if op == "BitShift" and k == 1:
                    numbers = np.random.default_rng(rng.randrange(2**32))
                    self.inputs[k] = numbers.integers(0, 8, a.shape).astype(a.dtype)
                else:
                    self.inputs[k] = fill(rng, a.dtype, a.shape, mine)
            elif a.shape != old[k] or rng.random() < 0.5:
                low, high = int(a.min()), int(a.max())
                if rng.random() < 0.5:
                    low, high = (-reach if low < 0 else 0), reach - 1
                numbers = np.random.default_rng(rng.randrange(2**32))
                self.inputs[k] = numbers.integers(low, high, a.shape, endpoint=True).astype(a.dtype)

    # --- other nodes

    def chain(self):
        """Up to three nodes around."""
        rng = self.rng
        is_open = has_repeated_updates(self.node, self.inputs) or is_open_reduction(self.node, self.inputs)
        if is_open or is_wrong_there(self.node):
            raise ValueError("left out by a rule")
        for output in self.graph.output:
            output.CopyFrom(onnx.ValueInfoProto(name=output.name))
        for info, a in zip(self.infos, self.inputs, strict=True):
            info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape))
        del self.graph.value_info[:]
        if self.boldness > 0 and self.opset >= 13 and rng.random() < 0.35:
            self.precede()
        self.bind_constants()
        results = self.run()
        if self.opset < 13 or rng.random() < 0.35:
            return
        at = rng.randrange(len(results))
        names = [o.name for o in self.graph.output if o.name]
        self.follow(names[at], results[at], rng.randint(1, 3))

    def precede(self):
        """One input comes from another node, which undoes what its array has had done to it here."""
        rng = self.rng
        k = rng.randrange(len(self.inputs)) if self.inputs else 0
        if not self.inputs or self.roles[k] == "parameter":
            return
        a, name = self.inputs[k], self.infos[k].name
        given, constants, attributes = a, [], {}
        op = rng.choice(["Transpose", "Reshape", "Slice", "Cast", "Concat", "Squeeze", "Neg", "Expand"])
        if op == "Transpose" and a.ndim > 1:
            perm = rng.sample(range(a.ndim), a.ndim)
            given, attributes = np.transpose(a, np.argsort(perm)), {"perm": perm}
        elif op == "Reshape":
            given, constants = a.reshape(-1), [np.array(a.shape, np.int64)]
        elif op == "Slice" and a.ndim:
            axis = rng.randrange(a.ndim)
            before, after = rng.randint(0, 3), rng.randint(0, 3)
            given = np.pad(a, [(before, after) if i == axis else (0, 0) for i in range(a.ndim)])
            constants = [np.array([n], np.int64) for n in (before, before + a.shape[axis], axis)]
        elif op == "Cast" and a.dtype in (np.float32, np.float64):
            given = a.astype(np.float64)
            if not np.array_equal(given.astype(a.dtype), a, equal_nan=True):
                return
            attributes = {"to": helper.np_dtype_to_tensor_dtype(a.dtype)}
        elif op == "Concat" and a.ndim:
            axis = rng.randrange(a.ndim)
            cut = rng.randint(0, a.shape[axis])
            given, rest = np.split(a, [cut], axis)
            attributes, constants = {"axis": axis}, [rest]
            if given.size == 0 or rest.size == 0:
                return
        elif op == "Squeeze":
            given, constants = a[None], [np.array([0], np.int64)]
        elif op == "Neg" and a.dtype.kind == "f":
            given = -a
        elif op == "Expand" and a.ndim and a.size and (a == a[:1]).all():
            given, constants = a[:1], [np.array(a.shape, np.int64)]
        else:
            return
        self.inputs[k] = np.ascontiguousarray(given).reshape(given.shape)
        self.infos[k].CopyFrom(
            helper.make_tensor_value_info(f"given_{name}", helper.np_dtype_to_tensor_dtype(given.dtype), given.shape)
        )
        names = [self.constant(c) for c in constants]
        node = helper.make_node(op, [f"given_{name}", *names], [name], **attributes)
        self.graph.node.insert(0, node)

    def bind_constants(self):
        rng = self.rng
        self.bound = []
        for k, role in enumerate(self.roles):
            is_bound = rng.random() < (0.6 if role == "parameter" else 0.25 if k else 0.05)
            if is_bound or (k and self.node.op_type in CONSTANT_PARAMETERS):
                self.bound.append(k)
        self.bound = self.bound if len(self.bound) < len(self.inputs) else self.bound[1:]
        for k in self.bound:
            self.graph.initializer.append(numpy_helper.from_array(self.inputs[k], self.infos[k].name))

    def fed(self):
        return [a for k, a in enumerate(self.inputs) if k not in self.bound]

    def run(self):
        kept = [i for k, i in enumerate(self.infos) if k not in self.bound]
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        del model.graph.input[:]
        model.graph.input.extend(kept)
        return run_onnxruntime(model, self.fed())

    def constant(self, array):
        name = f"chain_c{len(self.constants)}"
        self.constants[name] = array
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, op, inputs, **attributes):
        name = f"chain_v{len(self.graph.node)}"
        self.graph.node.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def follow(self, name, result, steps):
        rng = self.rng
        shape, dtype = list(result.shape), result.dtype
        first = name
        for _ in range(steps):
            if math.prod(shape) == 0 or math.prod(shape) > 4 * self.sizes.elements:
                break
            name, shape, dtype = rng.choice(FOLLOWERS)(self, name, shape, dtype)
        if name != first:
            output = next(o for o in self.graph.output if o.name == first)
            if rng.random() < 0.3:
                self.graph.output.add().name = name
            else:
                output.name = name

    def finish(self):
        kept = [i for k, i in enumerate(self.infos) if k not in self.bound]
        kept = [onnx.ValueInfoProto.FromString(i.SerializeToString()) for i in kept]
        del self.graph.input[:]
        self.graph.input.extend(kept)
        self.inputs_at_first, self.inputs = self.inputs, self.fed()
        self.is_bfloat16 = self.rng.random() < 0.12 and self.takes_bfloat16()
        if self.is_bfloat16:
            self.inputs = [in_bfloat16(a) for a in self.inputs]
            for tensor in self.graph.initializer:
                tensor.CopyFrom(numpy_helper.from_array(in_bfloat16(numpy_helper.to_array(tensor)), tensor.name))
        self.expected = run_onnxruntime(self.model, self.inputs)
        for output, a in zip(self.graph.output, self.expected, strict=True):
            if isinstance(a, np.ndarray) and a.dtype != object:
                info = helper.make_tensor_value_info(output.name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                output.CopyFrom(info)
            else:
                raise ValueError("no tensor")

    def takes_bfloat16(self):
        """Whether bfloat16 may stand for each f32; ONNX Runtime computes it in f32, since it has no bfloat16 itself."""
        nodes = self.graph.node
        if not self.case.is_node or self.node.op_type in MANY_STEPS:
            return False
        if any(a.name in ("to", "dtype", "value") for n in nodes for a in n.attribute):
            return False
        floats = [k for k, i in enumerate(self.infos) if self.inputs_at_first[k].dtype == np.float32]
        return bool(floats) and all(
            "tensor(bfloat16)" in self.formal.get(self.infos[k].name.removeprefix("given_"), ("", []))[1]
            for k in floats
        )

    def in_bfloat16(self):
        """The model with bfloat16 for f32, and its inputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for info in [*model.graph.input, *model.graph.output]:
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.BFLOAT16
        for tensor in model.graph.initializer:
            a = numpy_helper.to_array(tensor)
            if a.dtype == np.float32:
                tensor.CopyFrom(numpy_helper.from_array(a.astype(ml_dtypes.bfloat16), tensor.name))
        return model, [a.astype(ml_dtypes.bfloat16) if a.dtype == np.float32 else a for a in self.inputs]


def in_bfloat16(a):
    """Rounded to what bfloat16 holds."""
    with np.errstate(all="ignore"):
        return a.astype(ml_dtypes.bfloat16).astype(np.float32) if a.dtype == np.float32 else a
