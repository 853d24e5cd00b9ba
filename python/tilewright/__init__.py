"""Tilewright compiles neural networks to machine code.

import tilewright as tw

model = tw.load("model.onnx", shapes={"x": (1, 3, 224, 224)})
print(model.explain())
executable = tw.compile(model)
outputs = executable.run({"x": array})
"""

from . import te
from ._core import __version__
from .benchmark import Benchmark, benchmark
from .compare import check, compare
from .comparison import Check, Comparison
from .dimension import Dim
from .error import Error
from .executable import Executable, compile, load_executable
from .fallback import Fallback, FallbackWarning
from .machine import add_nvrtc_hints
from .model import Model, explain, load
from .operators import ArrayType, Operator
from .profile import Profile
from .reduce import Reduction, reduce
from .schedule import Schedule
from .tune import TuneReport, tune

__all__ = [
    "ArrayType",
    "Benchmark",
    "Check",
    "Comparison",
    "Dim",
    "Error",
    "Executable",
    "Fallback",
    "FallbackWarning",
    "Model",
    "Operator",
    "Profile",
    "Reduction",
    "Schedule",
    "TuneReport",
    "__version__",
    "benchmark",
    "check",
    "compare",
    "compile",
    "explain",
    "load",
    "load_executable",
    "reduce",
    "te",
    "tune",
]

add_nvrtc_hints()
