"""Python files that tell something: comments between statements are text, and what the code prints belongs there.

    python cells.py FILE ARGUMENTS…     runs one as `python FILE ARGUMENTS…` does, and prints MARK after each cell

Where a comment stands at the left edge, after an empty line, a cell begins.  "# 2. Load it.  A text. ------" and
"# Step 2: vectors.  A text." are its heading and its text: the heading ends at a colon, or where two spaces end a
sentence.
"""

import ast
import re
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

MARK = "\x1e"  # the record separator of ASCII
HEADING = re.compile(r"((?:\d+\.|Step \d+:) .*?)(?:\.  |: |[.:]?$)", re.S)


@dataclass
class Cell:
    heading: str
    text: str  # Markdown
    code: str
    line: int  # the first one of the code


def commented(lines: list[str]) -> tuple[str, str]:
    """Heading and text of a comment."""
    lines = [re.sub(r" -{5,}$", "  ", line.removeprefix("#")) for line in lines]
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    rest = [line[min(indents, default=1) :] for line in lines[1:]]
    text = "\n".join([lines[0].lstrip(), *rest]).strip()
    if not (found := HEADING.match(text)):
        return "", text
    text = text[found.end() :].strip()
    return " ".join(found[1].split()), text[:1].upper() + text[1:]


def cells_of(source: str) -> tuple[str, list[Cell]]:
    """The docstring and the cells; the first cell has what stands before any comment."""
    tree, lines = ast.parse(source), source.splitlines()
    inside = {n for node in tree.body for n in range(first_line(node), node.end_lineno + 1)}
    cells, after = [Cell("", "", "", 1)], tree.body[0].end_lineno
    at = after + 1
    while at <= len(lines):
        if at in inside or not lines[at - 1].startswith("#") or lines[at - 2].strip():
            if not cells[-1].code:
                cells[-1].line = at
            cells[-1].code += lines[at - 1] + "\n"
            at += 1
            continue
        end = at
        while end <= len(lines) and lines[end - 1].startswith("#"):
            end += 1
        cells.append(Cell(*commented(lines[at - 1 : end - 1]), "", end))
        at = end
    return ast.get_docstring(tree), cells


def first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def outputs_of(path: Path, *arguments: str) -> list[str]:
    """What each cell prints."""
    command = [sys.executable, __file__, path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{path} does not run:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return [part.strip("\n") for part in done.stdout.split(MARK)[:-1]]


def run(path: str) -> None:
    """Cell by cell in `__main__`, with the lines' own numbers."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"], sys.path[0] = main, str(Path(path).parent)
    main.__doc__, cells = cells_of(Path(path).read_text(encoding="utf-8"))
    for cell in cells:
        exec(compile("\n" * (cell.line - 1) + cell.code, path, "exec", dont_inherit=True), main.__dict__)
        print(MARK, end="", flush=True)


if __name__ == "__main__":
    del sys.argv[0]
    run(sys.argv[0])
