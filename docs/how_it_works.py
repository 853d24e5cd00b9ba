"""How it works: one small convolution, followed from the ONNX model to the inner loop.

    ./dev run python docs/how_it_works.py

`TW_DUMP=folder` makes the compiler write what each pass has made, of graphs and of kernels.  All that is shown below
was written so.  Long lines are cut, and parts are left out where it says "…".  The target is x86 with AVX2, whatever
machine you read this on: it has 16 vector registers of 8 numbers.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

folder = Path(tempfile.mkdtemp())
os.environ["TW_DUMP"] = str(folder / "dump")
os.environ["TW_CACHE"] = "off"  # a kernel that is kept from before goes through no pass


def dump(name: str) -> str:
    """What a pass has made: its file is NAME.NUMBER_PASS.tw."""
    (path,) = (folder / "dump").glob(f"{name}.tw")
    return path.read_text()


def show(text: str, first: int = 0, last: int | None = None, width: int = 112) -> None:
    """Some lines of a text, from `first` on, and before `last`."""
    lines = text.rstrip().splitlines()
    shown = textwrap.dedent("\n".join(lines[first:last])).splitlines()
    cut = [line if len(line) <= width else line[: width - 1] + "…" for line in shown]
    print("\n".join(["…"] * (first > 0) + cut + ["…"] * (first + len(cut) < len(lines))))


def line_of(text: str, pattern: str, after: int = 0) -> int:
    """The number of the first line in which the pattern is."""
    return next(at for at, line in enumerate(text.splitlines()) if at >= after and re.search(pattern, line))


# 1. The model.  A 3×3 convolution of 16 channels to 32, with a bias, a batch normalisation and a ReLU, as
#    frameworks for training write it. ---------------------------------------------------------------------------------

rng = np.random.default_rng(0)
arrays = {
    "weight": rng.standard_normal((32, 16, 3, 3)) / 12,
    "bias": rng.standard_normal(32),
    "scale": rng.uniform(0.5, 2, 32),
    "offset": rng.standard_normal(32),
    "mean": rng.standard_normal(32),
    "variance": rng.uniform(0.5, 2, 32),
}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "weight", "bias"], ["a"], name="conv"),
        helper.make_node("BatchNormalization", ["a", "scale", "offset", "mean", "variance"], ["b"], name="norm"),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ],
    "small",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 32, 32])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 30, 30])],
    initializer=[numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
)
onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

# 2. As it is imported.  `relay_ir` is a graph of operators over tensors, in one format for all frontends.  The
#    importer has mapped each ONNX node to one or more of our operators.  It has also computed what is known
#    already: the batch normalisation is one product and one sum, whose constants follow from its four inputs.
#    Large constants are shown by a hash of their elements.  What nobody needs any more is still there: passes
#    clear it away. ----------------------------------------------------------------------------------------------------

model = tw.load(onnx_model)
show(model.text)

# 3. After the passes.  `relay_ir/passes.def` lists all passes of graphs; each is a function from a graph to a
#    graph.  Here `fold_batch_norm` has multiplied the weights by the scale, and has put bias and offset together:
#    the batch normalisation is gone.  Then `eliminate_dead` has removed the constants that nobody reads.  Most of
#    the others had nothing to do.  The list has the passes that have changed something. -------------------------------


def look(schedule: tw.Schedule) -> bool:
    """A template that only looks: it is called with each kernel before that is scheduled."""
    kernels.append(schedule.func)
    return False


kernels = []
executable = tw.compile(model, target="x86:avx2", threads=1, winograd=False, template=look)

stages = sorted((folder / "dump").glob("small.*.tw"))
for before, after in zip(stages, stages[1:], strict=False):
    if before.read_text() != after.read_text():
        print(after.name)
print()
show(stages[-1].read_text())

# 4. As loops.  Nodes that can be one kernel are a group: here all three.  Each operator says what it computes as a
#    tensor expression, and these become one Func of `tensor_ir`.  This is the mathematics: nothing is said of
#    speed.  A block is a unit of work with its iteration variables: `spatial` ones say which element it makes,
#    `reduce` ones go over the terms of a sum.  Loops around it only say in which order that is done. ------------------

(func,) = kernels
show(str(func))

# 5. The schedule.  A schedule is a list of primitives, its trace.  Each primitive changes the loops, keeps the
#    meaning, and refuses to do what would not.  This one is the default for this target, which follows from
#    analysis:
#
#    - `compute_inline` puts the bias into the block that uses it: its array is gone.
#    - `transform_layout` reorders the weights, in advance: 16 output channels lie side by side in memory.
#    - `split` and `reorder` make a register tile: 6 positions (`i3_1`) × 2 vectors (`i1_1`) of 8 channels
#      (`i1_2`).
#    - `cache_write(…, register)` keeps the tile in registers while the sums run.
#    - `reverse_compute_at("relu", …)` puts bias and ReLU behind the tile, while its data are near.
#
#    A tuned schedule is such a list, too, with other numbers in it.  `decide` is where the numbers come from. ---------

schedule = tw.Schedule.default(func, target="x86:avx2")
assert [asked["candidates"][asked["chosen"]] for asked in schedule.asked if asked["name"] == "tile"] == [(6, 2)]
show(schedule.trace, last=14)
print()
for asked in schedule.asked:
    print(f"{asked['name']:15} {asked['candidates'][asked['chosen']]!s:8} one of {len(asked['candidates'])}")

# 6. Scheduled.  The same Func after these primitives.  One loop is left that is `parallel`: its iterations are the
#    tasks that the threads of a run share.  `unrolled` loops will be written out, `vectorized` ones become the
#    lanes of vectors.  Blocks are still there, so that each step can be checked, and the text can be run by the
#    interpreter.  The parallel loop is five loops that were fused, and its name says so; we show it as `task`. --------

FUSED = re.search(r"\w+(?= in \d+\.\.\d+ parallel)", str(schedule.func))[0]
text = str(schedule.func).replace(FUSED, "task")
show(text, last=4)
print()
at = line_of(text, "for r0 in")
show(text, at, at + 9)

# 7. Lowered.  Passes of loops (`tensor_ir/passes.def`) turn blocks into plain stores.  Arrays get one dimension,
#    and of an array that only one task sees just its part is left: 6 × 16 numbers.  Then vectors appear: `ramp(a,
#    1, 8)` is the 8 elements from `a` on, `broadcast(a, 8)` one number in all lanes. ----------------------------------

text = dump("k0_conv.*_vectorize_loops").replace(FUSED, "task")
at = line_of(text, "for r0 in")
show(text, at, at + 12, width=160)

# 8. Unrolled.  After the last pass the tile is written out: 6 × 2 multiply-adds with 2 loads of weights.  Sums and
#    products have become `fma`.  What is left goes to LLVM. -----------------------------------------------------------

text = dump("k0_conv.*_contract_fma").replace(FUSED, "task")
at = line_of(text, "for r2 in")
show(text, at, at + 14, width=160)

# 9. Machine code.  LLVM chooses registers and instructions, lld links, both in this process.  Look for what the
#    schedule has asked for: 12 `vfmadd231ps` on 12 different registers, which are the tile; 2 loads of weights
#    (`vmovaps`); 6 numbers of the input, each in all lanes (`vbroadcastss`).  Nothing of the tile goes to memory
#    here: that is what the schedule is for.  The loop is the one over the three columns of the window. ----------------


def printed(*command: str | Path) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


executable.save(folder / "small.twa")
text = printed("llvm-objdump-22", "-d", "--no-show-raw-insn", "--no-leading-addr", "small.twa").expandtabs(16)
at = line_of(text, "vfmadd")
assert len(re.findall("vfmadd231ps .*ymm", text)) == 12
start = max(n for n, line in enumerate(text.splitlines()[:at]) if "nop" in line) + 1
show(text, start, line_of(text, r"\bj\w+ ", at) + 1)

# 10. The artifact.  It has the code, the plan of a run (steps, and where arrays lie in one block of memory) and the
#     constants in their new layout.  It is one file, which is mapped when it is loaded.  On the machine where it
#     runs there is no compiler.  `tw inspect` shows what is in it. ----------------------------------------------------

print(printed(sys.executable, "-m", "tilewright", "inspect", "small.twa"))

# And it computes what the model says.
from onnx.reference import ReferenceEvaluator  # noqa: E402

x = rng.standard_normal((1, 16, 32, 32)).astype(np.float32)
(expected,) = ReferenceEvaluator(onnx_model).run(None, {"x": x})
print(f"largest difference from ONNX's own evaluator: {np.abs(executable(x)[0] - expected).max():.1e}")
