"""Types that a checker can trust: of the compiled module, of the package, and in the tutorials."""

import ast
import inspect
import re
import subprocess
import sys

import tilewright as tw
from conftest import ROOT
from tilewright.options import CompileOptions

STUB = ROOT / "python" / "tilewright" / "_core.pyi"
MISUSE = "tests/python/misuse.py"


def functions(tree):
    """(class or "", function) of each in a stub."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, each) for each in node.body if isinstance(each, ast.FunctionDef))


def is_setter(function):
    return any(isinstance(each, ast.Attribute) and each.attr == "setter" for each in function.decorator_list)


def test_the_stub_is_of_this_module(tmp_path):
    command = [sys.executable, "-m", "pybind11_stubgen", "--exit-code", "-o", tmp_path, "tilewright._core"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert STUB.read_text() == (tmp_path / "tilewright" / "_core.pyi").read_text()


def test_every_binding_has_names_and_words():
    tree = ast.parse(STUB.read_text())
    known = list(functions(tree))
    unnamed = [
        f"{owner}.{function.name}({argument.arg})"
        for owner, function in known
        for argument in function.args.args
        if re.fullmatch(r"arg\d+", argument.arg)
    ]
    assert unnamed == []
    public = [(owner, f) for owner, f in known if not f.name.startswith("_") and not is_setter(f)]
    without_words = [f"{owner}.{f.name}" for owner, f in public if not ast.get_docstring(f)]
    without_words += [c.name for c in tree.body if isinstance(c, ast.ClassDef) and not ast.get_docstring(c)]
    assert without_words == []
    primitives = re.findall(r"^PRIMITIVE\(\w+, (\w+)", (ROOT / "schedule/primitives.def").read_text(), re.MULTILINE)
    assert primitives and set(primitives) <= {f.name for owner, f in public if owner == "Schedule"}


def test_options_that_are_handed_on_are_those_of_compile():
    known = CompileOptions.__annotations__.keys() - {"constants"}  # of tw.load
    assert known == inspect.signature(tw.compile).parameters.keys() - {"model", "shapes"}
    assert CompileOptions.__annotations__.keys() - known <= inspect.signature(tw.load).parameters.keys()


def test_mypy_finds_what_is_wrong_and_nothing_else():
    """In one process, which takes some 10 s, and 2 s where .cache/mypy knows the libraries."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    paths = ["python/tilewright", "tutorials", MISUSE]
    done = subprocess.run([*command, *paths], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if ": note: " not in line]
    assert [line for line in errors if not line.startswith(f"{MISUSE}:")] == []
    found = [re.match(r"[^:]+:(\d+): error: .*\[([\w-]+)\]$", line).groups() for line in errors]
    lines = (ROOT / MISUSE).read_text().splitlines()
    wanted = [(str(n), code) for n, line in enumerate(lines, 1) for code in re.findall(r"# error: ([\w-]+)$", line)]
    assert wanted and found == wanted
