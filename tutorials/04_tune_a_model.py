"""Tutorial 04: tune a model, use what was found, and read the report.

    ./dev run python tutorials/04_tune_a_model.py [--budget 10m]

Default schedules come from analysis.  Where analysis errs, measuring finds better ones: the tuner tries which
convolutions go by Winograd's filtering and which products by Strassen's algorithm in runs of the network, then
schedules for each kernel, in a process of its own that cannot harm the job, and keeps every result in a database.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import tuning_charts

arguments = argparse.ArgumentParser()
arguments.add_argument("--budget", default="20s", help="how long to search: 30s, 10m, 8h")
arguments.add_argument("--threads", type=int, default=1)
options = arguments.parse_args()
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)

# 1. A model: convolutions, one of them depthwise; any .onnx file goes the same way. ----------------------------------


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32), name)


graph = helper.make_graph(
    [
        helper.make_node("Conv", ["image", "w1"], ["a"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[2, 2, 2, 2], group=48, name="depthwise"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"], name="pointwise"),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["scores"]),
    ],
    "tutorial",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 12, 40, 40])],
    [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 56])],
    initializer=[weights("w1", 48, 12, 3, 3), weights("w2", 48, 1, 5, 5), weights("w3", 56, 48, 1, 1)],
)
model_file = folder / "tutorial.onnx"
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model_file)
model = tw.load(model_file)

# 2. Tune it.  What is tried becomes a row of the database at once, so the job can be ended at any moment and the same
#    call goes on; a longer budget later adds to it.  `tw tune` is the same on the command line. ---------------------

database = folder / "tune.db"
shown: Counter[str] = Counter()


def on_event(event: dict[str, Any]) -> None:
    if event["event"] == "start":
        print(f"{event['open_choices']} choices of the network, which takes {event['milliseconds']:.3f} ms by default")
    if event["event"] == "tasks":
        print(f"{event['tasks']} tasks of a network that takes {event['milliseconds']:.3f} ms with default schedules")
    if event["event"] == "trial":
        shown[event["status"]] += 1
        if event["status"] == "ok" and event["ratio_to_default"] < 0.97:
            print(
                f"  {event['task']}: {event['decisions']} takes {event['ratio_to_default']:.2f} of the default's time"
            )
    if event["event"] == "confirmation":
        verdict = "adopted" if event["adopted"] else "not adopted"
        print(f"  the network with {event['records']} of them: {event['ratio']:.3f} of its time, {verdict}")


report = tw.tune(model, db=database, budget=options.budget, threads=options.threads, on_event=on_event)
print(f"{report.trials} trials: {dict(shown)}\n")

# 3. Use it: with the same target and number of threads.  Kernels without a record keep their default schedules. -------

default = tw.compile(model, threads=options.threads)
tuned = tw.compile(model, threads=options.threads, db=database)
image = rng.standard_normal((1, 12, 40, 40)).astype(np.float32)
np.testing.assert_allclose(tuned(image)[0], default(image)[0], rtol=1e-3, atol=1e-4)
print(f"The two agree.  In use now: {report.adopted - report.choices} tuned schedules, {report.choices} choices,")
print(f"{report.before_milliseconds:.3f} → {report.after_milliseconds:.3f} ms, measured side by side.\n")

# 4. Records are for exactly this target: instruction set, caches and number of threads.  No other sees them. ----------

other = tw.compile(model, "x86:avx2", threads=options.threads, db=database)
print("For another target:", next(line for line in other.report().splitlines() if "database" in line).strip())

# 5. The report: one page, for reading without a network. ----------------------------------------

page = folder / "report.html"
page.write_text(tuning_charts.page(tuning_charts.read(str(database))), encoding="utf-8")
print(f"""
Read {page} from top to bottom:
  Latency over time   flat at its end?  Then a longer budget would bring little.
  Time by task        where the time is, and what was won there.
  Roofline            a task far below the line has room left that its schedules do not reach.
  Confidence          an interval that touches 1 is no gain; none such is used.
  Predictions         how well the search knew beforehand; what it measured is what counts.
  How trials ended    crashes and wrong results are the compiler's bugs: please report them.""")
