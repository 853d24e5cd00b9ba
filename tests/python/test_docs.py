"""The documentation is made without a warning, and its links lead somewhere."""

import re
import subprocess
import sys

import pytest

import tilewright as tw
from conftest import ROOT

sys.path.append(str(ROOT / "docs/site"))

from cells import cells_of, outputs_of  # noqa: E402
from links import broken_in_html, broken_in_markdown  # noqa: E402

MARKDOWN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "tensor_ir/SYNTAX.md"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """With all pages; tutorials run in tests of their own, and do not run here."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, ROOT / "docs/site", "--quick", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def text_of(site, page: str) -> str:
    return re.sub(r"<[^>]*>", "", (site / page).read_text(encoding="utf-8"))


def test_no_link_of_the_site_is_broken(site):
    assert len(list(site.rglob("*.html"))) > 30
    assert broken_in_html(site) == []


def test_all_of_the_python_interface_is_there(site):
    page = (site / "python.html").read_text(encoding="utf-8")
    names = [f"tilewright.{name}" for name in tw.__all__ if name != "te"]
    methods = [f"tilewright.Schedule.{name}" for name in dir(tw.Schedule) if not name.startswith("_")]
    functions = [f"tilewright.te.{name}" for name in ("compute", "reduce", "update", "maximum", "Tensor")]
    assert [name for name in names + methods + functions if f'id="{name}"' not in page] == []


def test_the_commands_are_there(site):
    text = text_of(site, "commands.html")
    assert "tw device serve" in text and "--target &lt;str&gt;" in text


def test_one_convolution_is_followed_to_its_inner_loop(site):
    text = text_of(site, "how_it_works.html")
    assert re.search(r"small\.\d\d_fold_batch_norm\.tw", text) and "block conv(spatial vi0" in text
    assert len(re.findall(r"vfmadd231ps +%ymm", text)) == 12


def test_every_tutorial_has_a_page(site):
    for path in (ROOT / "tutorials").glob("*.py"):
        assert "The outputs are left out" in text_of(site, f"tutorials/{path.stem}.html")


def test_comments_are_headings_and_text_and_outputs_belong_to_cells(tmp_path):
    path = tmp_path / "told.py"
    path.write_text(
        '"""A title."""\n\nimport sys\n\n# 1. First.  A text -----\n\nprint(__name__)  # no text\n'
        "\n# 2. Second. -----\n# More: of it.\n\nfor word in sys.argv[1:]:\n    # no text\n\n    print(word)\n"
        "\n# Step 3: third\n\n# only a text\nassert len(sys.argv) == 3\n"
    )
    title, cells = cells_of(path.read_text())
    assert title == "A title."
    assert [(cell.heading, cell.text) for cell in cells] == [
        ("", ""), ("1. First", "A text"), ("2. Second", "More: of it."), ("Step 3: third", ""), ("", "only a text"),
    ]  # fmt: skip
    assert [cell.line for cell in cells][1:3] == [6, 11] and "import sys" in cells[0].code
    assert outputs_of(path, "a", "b") == ["", "__main__", "a\nb", "", ""]
    with pytest.raises(SystemExit, match="line 20"):
        outputs_of(path)


@pytest.mark.parametrize("path", [*MARKDOWN, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_no_link_between_files_is_broken(path):
    assert broken_in_markdown(path) == []


def test_a_broken_link_is_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here">1</a><a href="b.html#there">2</a><a href="https://example.org/x">3</a>'
        '<a href="#nowhere">4</a><a href="b.html#nowhere">5</a><a href="c.html">6</a><img src="d.png">'
    )
    (tmp_path / "b.html").write_text('<p id="there"><a href="../outside.html">7</a>')
    (tmp_path.parent / "outside.html").write_text("")
    assert sorted(broken_in_html(tmp_path)) == [
        "a.html: #nowhere",
        "a.html: b.html#nowhere",
        "a.html: c.html",
        "a.html: d.png",
        "b.html: ../outside.html",
    ]
    (tmp_path / "a.md").write_text(
        "# One `two`\n[1](#one-two) [2](b.html) [3](b.md) [`4`](#three) `[5](c.md)`\n```\n# three\n[6](d.md)\n```\n"
    )
    assert broken_in_markdown(tmp_path / "a.md") == ["a.md: b.md", "a.md: #three"]
