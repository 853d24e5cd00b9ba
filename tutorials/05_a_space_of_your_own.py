"""Tutorial 05: a schedule space of your own, which the tuner searches.

    ./dev run python tutorials/05_a_space_of_your_own.py [--budget 30s]

A template schedules a kernel and asks for what it leaves open: `schedule.decide(name, candidates, analytic)`.  Without
a decision the analytic choice holds; the tuner makes others, measures them beside it, and keeps what is faster.  The
templates of the targets are written the same way, in C++ (targets/cpu).
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import machine

arguments = argparse.ArgumentParser()
arguments.add_argument("--budget", default="20s", help="how long to search: 30s, 10m")
options = arguments.parse_args()
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
LANES = machine.describe()["vector_bits"] // 32  # f32 numbers in a vector register

# 1. A model with something that our template is for: the energy of each column, a sum over many rows. -----------------

ROWS, COLUMNS = 512, 4096
graph = helper.make_graph(
    [
        helper.make_node("Mul", ["x", "x"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "axes"], ["energies"], keepdims=0),
        helper.make_node("Sqrt", ["energies"], ["norms"]),
    ],
    "norms",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, COLUMNS])],
    [helper.make_tensor_value_info("norms", TensorProto.FLOAT, [COLUMNS])],
    initializer=[numpy_helper.from_array(np.array([0], np.int64), "axes")],
)
model_file = folder / "norms.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model_file)
model = tw.load(model_file)

# 2. The template.  It is called with a new Schedule of each kernel; False leaves the kernel to the target. ------------


def sums_over_rows(schedule: tw.Schedule) -> bool:
    """Neighbouring columns are the lanes of vectors; some vectors of sums stay in registers while the rows go by."""
    if len(schedule.blocks()) < 2:
        return False
    *producers, total, root = schedule.blocks()
    if [schedule.extent(loop) for loop in schedule.loops(total)] != [COLUMNS, ROWS]:
        return False
    for producer in producers:
        schedule.compute_inline(producer)  # the squares, where they are summed up
    column, row = schedule.loops(total)

    # What is left open.  Costs are predictions in any unit, which the search begins with; the analytic choice is what
    # holds without a search: here a careful one, that no core runs out of registers with.
    vectors = schedule.decide("vectors", [1, 2, 4, 8, 16], analytic=2, costs=[1.2, 1.0, 0.9, 0.9, 1.1])
    rows = schedule.decide("rows", [1, 2, 4, 8], analytic=1, costs=[1.0, 1.0, 1.0, 1.1])  # unrolled

    task, vector, lane = schedule.split(column, [None, vectors, LANES])
    row, unrolled = schedule.split(row, [None, rows])
    schedule.reorder(task, row, unrolled, vector, lane)
    schedule.set_scope(total, "register")
    schedule.reverse_compute_at(root, task)  # the square root, once a task's sums are complete
    schedule.decompose_reduction(total, row)
    schedule.split(schedule.loops(root)[-1], [None, LANES])
    for block in schedule.blocks():
        *outer, lane = schedule.loops(block)
        schedule.vectorize(lane)
        for loop in outer[outer.index(task) + 1 :]:
            if not loop == row:
                schedule.unroll(loop)
    schedule.parallel(task)
    return True


# 3. With its analytic choices it is a schedule like any other. --------------------------------------------------------

plain = tw.compile(model, threads=1)
ours = tw.compile(model, threads=1, template=sums_over_rows)
x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
expected = np.sqrt((x * x).sum(axis=0))
np.testing.assert_allclose(ours(x)[0], expected, rtol=1e-4)
print("The template's kernel gives the right answer with its analytic choices.")

# 4. Tuned: the search asks the template what there is to decide.  What it finds is for this template alone. -----------

database = folder / "tune.db"


def on_event(event: dict[str, Any]) -> None:
    if event["event"] == "trial" and event["status"] == "ok":
        print(f"  {event['decisions']:24} takes {event['ratio_to_default']:.2f} of the analytic choice's time")


report = tw.tune(model, db=database, budget=options.budget, threads=1, template=sums_over_rows, on_event=on_event)
print(f"{report.trials} trials of at most {5 * 4 - 1} points, {report.adopted} adopted")
tuned = tw.compile(model, threads=1, template=sums_over_rows, db=database)
np.testing.assert_allclose(tuned(x)[0], expected, rtol=1e-4)


def milliseconds(executable: tw.Executable) -> float:
    return min(executable.profile({"x": x}, 20).seconds for _ in range(5)) * 1e3


for name, executable in (("the target's template", plain), ("ours, analytic", ours), ("ours, tuned", tuned)):
    print(f"{name:24} {milliseconds(executable):.3f} ms")
