"""What a type checker has to find: a line that is wrong ends with the code of mypy's error, all others are right."""

import numpy as np

import tilewright as tw
from tilewright import te

x = np.zeros((1, 3), np.float32)

model = tw.load("model.onnx", shapes={"x": (1, "n", tw.Dim("m", 1, 64)), "y": [(2, 3), (4, 3)], "z": None})
tw.load("model.onnx", shape={"x": (1, 3)})  # error: call-arg
tw.load("model.onnx", shapes={"x": 3})  # error: dict-item
tw.load(3)  # error: arg-type
model.explains()  # error: attr-defined

executable = tw.compile(model, threads=2, profiles=[{"n": 8}, {"n": (1, 64)}], in_place={"y": "x"})
tw.compile(model, thread=2)  # error: call-arg
tw.compile(model, threads="2")  # error: arg-type
tw.compile(model, profiles=[{"n": (1, 2, 3, 4)}])  # error: dict-item
tw.compile(executable)  # error: arg-type
tw.load_executable(3)  # error: arg-type

outputs: dict[str, np.ndarray] = executable.run({"x": x}, out={"y": x})
executable.run([x])  # error: arg-type
executable.run(x=x)  # error: call-arg
executable.run({1: x})  # error: dict-item
executable.threads = "2"  # error: assignment
sizes: tuple[int | str, ...] = executable.inputs["x"].shape
name: str = executable.outputs["y"].dtype
print(executable.inputs["x"].shapes)  # error: attr-defined
executable.inputs[0]  # error: index

report = tw.tune(model, db="tune.db", budget=60)
tw.tune(model, db="tune.db", budget=None)  # error: arg-type
tw.check(model, precison="f16")  # error: call-arg
tw.reduce("model.onnx", precision=16)  # error: arg-type
print(report.trial)  # error: attr-defined
tw.benchmark(model)  # error: arg-type
tw.compare(model, against="onnxruntime").to_html()  # error: call-arg

a = te.placeholder("A", (8, 8))
b = te.compute("B", a.shape, lambda i, j: te.sqrt(a[j, i] * 2) + 1.5)
te.compute("B", 8, lambda i: a[i, i])  # error: arg-type
te.compute("B", (8,), 1.0)  # error: arg-type
te.exp("x")  # error: arg-type
a["i"]  # error: index
tw.Operator("example", "Smooth", expresion=te.exp)  # error: call-arg
tw.ArrayType("f32", 8)  # error: arg-type

schedule = tw.Schedule(te.func("f", [a], [b]))
i, j = schedule.loops("B")
outer, inner = schedule.split(i, [None, schedule.decide("rows", [1, 2], analytic=2)])
schedule.split(i)  # error: call-arg
schedule.split(i, 4)  # error: arg-type
schedule.split("B", [None, 4])  # error: arg-type
schedule.reorder(j, "i")  # error: arg-type
schedule.vectorise(j)  # error: attr-defined
schedule.vectorize(loops=j)  # error: call-arg
schedule.cache_write("B", "B")  # error: call-arg
schedule.rfactor(j, 0.5)  # error: arg-type
schedule.decide("rows", [1, 2], analytic="2")  # error: call-overload
te.build(model)  # error: arg-type
