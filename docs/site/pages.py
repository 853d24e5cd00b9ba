"""Pages for Sphinx, made from the files of the repository."""

import ast
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

import marked
from cells import Cell, cells_of, outputs_of
from tilewright import machine

ROOT = Path(__file__).resolve().parents[2]
(C_INTERFACE,) = [p for p in (ROOT / "runtime").glob("*.h") if "define TW_API" in p.read_text(encoding="utf-8")]
# The pages that have a name of their own, by the file that they show.
PAGES = {
    "README.md": "index",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "tensor_ir/SYNTAX.md": "syntax",
    "docs/errors.md": "errors",
    "docs/coming_from.md": "coming_from",
    "docs/how_it_works.py": "how_it_works",
    "schedule/primitives.def": "primitives",
    str(C_INTERFACE.relative_to(ROOT)): "c_interface",
}
INSIDE = ("Map of the folders", "`./dev`")  # sections of README.md for those who work on the compiler
SHORT = {"--budget": "3s", "--seconds": "0.05"}  # what tutorials that search or measure are given here


class Site:
    """The pages, in a folder for Sphinx."""

    def __init__(self, folder: Path):
        self.folder, self._shown = folder, set()
        self._introduction, self._sections = marked.sections((ROOT / "README.md").read_text(encoding="utf-8"))
        self._how_it_works = self._sections.pop("How it works", "")

    def write(self, page: str, text: str) -> None:
        path = self.folder / f"{page}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def linked(self, text: str, of: str, page: str) -> str:
        """Markdown of a file, with its links as they are from the page."""

        def there(link: str) -> str:
            parts = urlsplit(link)
            if parts.scheme or not parts.path:
                return link
            target = os.path.normpath(Path(of).parent / parts.path)
            if Path(target).suffix in (".svg", ".png"):
                shutil.copy(ROOT / target, self.folder)
                return os.path.relpath(Path(target).name, Path(page).parent)
            name = f"{self.page_of(target)}.md" + f"#{parts.fragment}" * bool(parts.fragment)
            return os.path.relpath(name, Path(page).parent)

        return marked.with_links(text, there)

    def page_of(self, path: str) -> str:
        """Of a file or folder; one that has no page is shown."""
        if path in PAGES:
            return PAGES[path]
        if path.startswith("tutorials/"):
            return path.removesuffix(".py")
        if (ROOT / path).exists():
            self._shown.add(path)
        return f"source/{path}"

    def markdown(self, path: str) -> None:
        page = PAGES[path]
        self.write(page, self.linked((ROOT / path).read_text(encoding="utf-8"), path, page))

    def readme(self) -> None:
        """The start page, and one for each section."""
        pages = {title: f"readme/{marked.slug(title)}" for title in self._sections}
        for title, body in self._sections.items():
            text = self.linked(marked.raised(body), "README.md", pages[title])
            self.write(pages[title], f"# {title}\n{text}")
        tutorials = [f"{name_of(path)} <tutorials/{path.stem}>" for path in sorted((ROOT / "tutorials").glob("*.py"))]
        guide = [page for title, page in pages.items() if title not in (*INSIDE, "Licence")]
        inside = [pages[title] for title in INSIDE if title in pages]
        trees = {
            "Guide": [*guide, "coming_from", "errors"],
            "Tutorials": tutorials,
            "Reference": ["python", "commands", "c_interface", "syntax", "primitives"],
            "Inside": ["How it works <how_it_works>", *inside, "contributing"],
            "Project": ["changelog", *(page for title, page in pages.items() if title == "Licence")],
        }
        text = self.linked(self._introduction, "README.md", "index")
        self.write("index", "\n".join([text, *(tree(caption, names) for caption, names in trees.items())]))

    def told(self, path: str | Path, is_run: bool = True) -> None:
        """A file in Python whose comments tell something, with what it prints (cells.py)."""
        path = str(path)
        page, source = self.page_of(path), (ROOT / path).read_text(encoding="utf-8")
        docstring, cells = cells_of(source)
        title, text = docstring.split("\n", 1)
        arguments = [word for option, value in SHORT.items() if f'"{option}"' in source for word in (option, value)]
        outputs = outputs_of(ROOT / path, *arguments) if is_run else [""] * len(cells)
        here = machine.describe()
        said = f"Outputs are of the machine that built this page ({here['cpu']}, {here['threads']} threads)"
        said += f", with `{' '.join(arguments)}`." if arguments else "."
        lines = ["```{note}", said if is_run else "The outputs are left out of this build.", "```"]
        for cell, output in zip(cells, outputs, strict=True):
            lines += shown_cell(cell, output)
        parts = [f"# {title.rstrip('.')}", self.linked(text, path, page), self.linked("\n".join(lines), path, page)]
        if page == "how_it_works":
            parts.insert(2, self.linked(self._how_it_works, "README.md", page))
        self.write(page, "\n".join(parts))

    def c_interface(self) -> None:
        lines = ["# The C interface", "", included(C_INTERFACE, self.folder)]
        for example in sorted((ROOT / "examples/c").glob("*.c")):
            lines += ["", f"## An example: {example.name}", "", included(example, self.folder)]
        self.write("c_interface", "\n".join(lines) + "\n")

    def primitives(self) -> None:
        """What stands at the head of each primitive's file."""
        table = (ROOT / "schedule/primitives.def").read_text(encoding="utf-8")
        lines = [
            "# Primitives of schedules",
            "",
            "What each method of `tilewright.Schedule` does to the loops, before ⇒ after, and when it is legal. "
            "Calls are written as in traces.",
        ]
        for name in re.findall(r"^PRIMITIVE\((\w+)", table, re.M):
            path = ROOT / f"schedule/primitives/{name}.cpp"
            if path.exists():
                lines += ["", f"## {name}", "", "```text", head(path), "```"]
        self.write("primitives", "\n".join(lines) + "\n")

    def shown_files(self) -> None:
        """Pages of files and folders that others have linked to."""
        for path in sorted(self._shown):
            there = ROOT / path
            page = f"source/{path}"
            shown = listed(there) if there.is_dir() else included(there, (self.folder / page).parent)
            self.write(page, f"---\norphan: true\n---\n\n# {path}\n\n{shown}\n")


def tree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def name_of(tutorial: Path) -> str:
    """Its title, for a narrow column."""
    return head(tutorial).split("\n")[0].removeprefix("Tutorial ").rstrip(".").split(",")[0]


def shown_cell(cell: Cell, output: str) -> list[str]:
    lines = [f"\n## {cell.heading}"] if cell.heading else []
    lines += ["", cell.text, ""] if cell.text else []
    if code := re.sub(r"  # noqa.*", "", cell.code.strip("\n")):
        lines += ["", "```python", code, "```"]
    if output.strip():
        lines += ["", "```{code-block} text", ":class: output", "", *map(str.rstrip, output.splitlines()), "```"]
    return lines


def included(path: Path, page_folder: Path) -> str:
    try:
        language = get_lexer_for_filename(path.name).aliases[0]
    except ClassNotFound:
        language = "text"
    if path.suffix in (".h", ".def"):
        language = "c++"
    where = os.path.relpath(path, page_folder)
    return f"```{{literalinclude}} {where}\n:language: {language}\n```"


def head(path: Path) -> str:
    """The comment with which a file begins."""
    text = path.read_text(encoding="utf-8", errors="ignore")
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    if text.startswith("/*"):
        return re.sub(r"^ \* ?", "", text[2 : text.index("*/")], flags=re.M).strip()
    lines = [re.match(r"(?://|#(?!!|\w|pragma)|--) ?(.*)", line) for line in text.splitlines()]
    count = next((n for n, line in enumerate(lines) if not line), len(lines))
    return "\n".join(line[1] for line in lines[:count]).strip()


def listed(folder: Path) -> str:
    """What lies in a folder, and the first sentence of each file."""
    rows = ["| file | |", "| --- | --- |"]
    names = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(names, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()
    for inner, count in Counter(name.split("/")[0] for name in files if "/" in name).items():
        rows.append(f"| `{inner}/` | {count} files |")
    rows += [f"| `{name}` | {first_sentence(head(folder / name))} |" for name in files if "/" not in name]
    return "\n".join(rows)


def first_sentence(text: str) -> str:
    text = " ".join(text.split("\n\n")[0].split())
    return re.sub(r"([*_\\<>$|\[\]{}`])", r"\\\1", re.split(r"(?<=[.:]) (?=[A-Z ])", text)[0])
