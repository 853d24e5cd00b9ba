"""Rules of the source tree that no compiler checks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ["runtime", "tensor_ir", "schedule", "targets", "relay_ir", "frontends", "autotune", "python"]
# Third parties that stay in one room each.
OWNERS = {
    r"llvm[-/]": "targets",
    r"lld/": "targets",
    r"(cuda|nvrtc)\.h": "targets",
    r"protozero/": "frontends",
    r"(sqlite3|xgboost/)": "autotune",
    r"pybind11/": "python",
    r"omp\.h": "runtime",
}


def tracked(*patterns: str) -> list[Path]:
    """Files that git knows or would take, so that a new file is checked before it is committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).exists()]


def includes(path: Path):
    """Yields (line, header) for every #include of a file."""
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if match := re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line):
            yield number, match[1]


def order_problems(room: str, lines) -> list[str]:
    """What is wrong with the includes of a file that lives in `room`."""
    problems = []
    for number, header in lines:
        folder = header.split("/")[0]
        if folder in ROOMS and ROOMS.index(folder) > ROOMS.index(room):
            problems.append(f"{number}: {room} may not include {header}: {folder} stands to its right")
        for pattern, owner in OWNERS.items():
            if re.match(pattern, header) and room != owner:
                problems.append(f"{number}: only {owner} may include {header}")
    return problems


SOURCES = [p for p in tracked("*.h", "*.cpp", "*.c", "*.def") if p.relative_to(ROOT).parts[0] in ROOMS]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_folder_includes_only_itself_and_what_stands_to_its_left(path):
    room = path.relative_to(ROOT).parts[0]
    assert order_problems(room, includes(path)) == []


def test_the_rule_notices_what_it_is_for():
    assert order_problems("tensor_ir", [(3, "relay_ir/graph.h")])
    assert order_problems("relay_ir", [(3, "llvm/IR/Module.h")])
    assert not order_problems("relay_ir", [(3, "tensor_ir/ir.h"), (4, "vector")])


def test_only_a_frontend_knows_its_format():
    # So that the next frontend finds nothing that is made for another: neither in the rooms before the frontends, nor
    # in what they share.
    before = ROOMS[: ROOMS.index("frontends")]
    neutral = [p for p in SOURCES if p.relative_to(ROOT).parts[0] in before or p.parent == ROOT / "frontends"]
    assert neutral and [p for p in neutral if "onnx" in p.read_text().lower()] == []


# A target's family is no question: what depends on it is a fact of the target or of its backend (targets/backend.h).
FAMILY = re.compile(
    r"""TargetKind|target_?(\.|->)(kind|architecture|triple|name|backend)\s*[!=]=|[!=]=\s*\w*target_?(\.|->)"""
    r"""|target(\.name)?\s*[!=]=\s*["'](cuda|x86|arm)|target(\.name)?\.(startswith|starts_with)\("""
    r"""|#include "targets/(arm|cpu|cuda|llvm|x86)/"""
)
# What the machine has, whatever is compiled for.
ASKS_THE_MACHINE = {'#include "targets/cuda/nvrtc.h"': "python/bind_machine.cpp"}


def family_questions(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if FAMILY.search(line)]


def test_only_builds_with_tests_have_seeded_faults():
    wrong = re.compile(r"seeded_fault|TW_FAULT|#include \"tests/")
    inside = re.compile(r"#ifdef TW_TESTS\n.*?#endif\n", re.S)
    texts = {str(p.relative_to(ROOT)): p.read_text() for p in SOURCES}
    assert [path for path, text in texts.items() if wrong.search(text)] == ["python/bind_model.cpp"]
    assert not wrong.search(inside.sub("", texts["python/bind_model.cpp"]))
    assert 'TW_TESTS = "OFF"' in (ROOT / "pyproject.toml").read_text()


def test_only_targets_know_families_of_targets():
    rooms = [room for room in ROOMS if room != "targets"]
    asked = {
        (str(p.relative_to(ROOT)), line)
        for p in tracked("*.h", "*.cpp", "*.py")
        if p.relative_to(ROOT).parts[0] in rooms
        for line in family_questions(p.read_text())
    }
    assert {(p, line) for p, line in asked if ASKS_THE_MACHINE.get(line) != p} == set()


def test_the_rule_of_families_notices_what_it_is_for():
    assert family_questions("if (target_.kind == TargetKind::cuda) return;")
    assert family_questions('if (context.target.architecture == "cuda")')
    assert family_questions("if target.startswith('cuda'):")
    assert family_questions('#include "targets/cuda/emit.h"')
    assert not family_questions("if (!target.backend->merges_axes) return;")


def test_no_source_file_is_longer_than_600_lines():
    # Files aim at 300 lines and are split where they hold two subjects; this is where it stops.
    long = {
        str(p.relative_to(ROOT)): n
        for p in tracked("*.h", "*.cpp", "*.py")
        if (n := len(p.read_text().split("\n"))) > 600
    }
    assert long == {}


def test_every_error_code_is_documented():
    codes = re.findall(r"= (1\d{3})\s*,", (ROOT / "runtime/error.h").read_text())
    rows = re.findall(r"^\| TW(\d{4}) \|", (ROOT / "docs/errors.md").read_text(), re.M)
    assert codes and sorted(rows) == sorted(codes)


# Files that may ask an operator for its name: patterns and their tables, and the list of operators.
NAMING = {
    "relay_ir/pattern.cpp",
    "relay_ir/pattern.h",
    "relay_ir/graph.cpp",
    "relay_ir/op.cpp",
    "relay_ir/passes/recognise.cpp",
}
NAMED = re.compile(
    r"op(\(\))?(->|\.)name\s*[=!]=|[=!]=\s*\w*[>.]op(->|\.)name|(count|find|contains)\([^()]*op(->|\.)name|"
    r"&?\s\w+ = [\w.>-]*op(->|\.)name;"
)


def named_operators(path: str, text: str) -> list[int]:
    """Lines that tell operators apart by their names."""
    return [n for n, line in enumerate(text.split("\n"), 1) if path not in NAMING and NAMED.search(line)]


def test_operators_are_known_by_their_facts():
    found = {str(p.relative_to(ROOT)): named_operators(str(p.relative_to(ROOT)), p.read_text()) for p in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_rule_of_names_notices_what_it_is_for():
    assert named_operators("relay_ir/x.cpp", 'if (node.op->name == "conv") {')
    assert named_operators("relay_ir/x.cpp", "const std::string& op = node.op->name;")
    assert named_operators("relay_ir/x.cpp", "return movers().count(node.op->name) != 0;")
    assert not named_operators("relay_ir/x.cpp", 'text += " = " + quote_name(node.op->name);')


def test_ruff_has_nothing_to_say():
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "-q", "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
