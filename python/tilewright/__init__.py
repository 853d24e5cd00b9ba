"""Tilewright compiles neural networks to machine code.

import tilewright as tw

model = tw.load("model.onnx", shapes={"x": (1, 3, 224, 224)})
print(model.explain())
executable = tw.compile(model)
outputs = executable.run({"x": array})
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import te as te
    from ._core import DeviceArray
    from ._core import __version__ as __version__
    from .arrays import to_device
    from .benchmarking import Benchmark, benchmark
    from .comparing import check, compare
    from .comparison import Check, Comparison
    from .deploying import deploy, get_include
    from .dimension import Dim
    from .error import Error
    from .executable import Executable, compile, load_executable
    from .fallback import Fallback, FallbackWarning
    from .kit import make_kit
    from .model import Model, explain, load
    from .operators import ArrayType, Operator
    from .profile import Profile
    from .reducing import Reduction, reduce
    from .schedule import Schedule
    from .tuning import TuneReport, tune

__all__ = [
    "ArrayType",
    "Benchmark",
    "Check",
    "Comparison",
    "DeviceArray",
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
    "deploy",
    "explain",
    "get_include",
    "load",
    "load_executable",
    "make_kit",
    "reduce",
    "te",
    "to_device",
    "tune",
]

# Where they are: modules are imported when something of them is asked for, so that `tw --help` is there at once.  No
# module is called as what it has.
_HOMES = {
    "__version__": "_core",
    "ArrayType": "operators",
    "Benchmark": "benchmarking",
    "Check": "comparison",
    "Comparison": "comparison",
    "DeviceArray": "_core",
    "Dim": "dimension",
    "Error": "error",
    "Executable": "executable",
    "Fallback": "fallback",
    "FallbackWarning": "fallback",
    "Model": "model",
    "Operator": "operators",
    "Profile": "profile",
    "Reduction": "reducing",
    "Schedule": "schedule",
    "TuneReport": "tuning",
    "benchmark": "benchmarking",
    "check": "comparing",
    "compare": "comparing",
    "compile": "executable",
    "deploy": "deploying",
    "explain": "model",
    "get_include": "deploying",
    "load": "model",
    "load_executable": "executable",
    "make_kit": "kit",
    "reduce": "reducing",
    "to_device": "arrays",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:
    if name == "te":
        return importlib.import_module(".te", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
