"""Makes the documentation: pages for Sphinx from what lies in the repository, then the site.

    python docs/site [--quick] [FOLDER]      into build/site

Nothing is copied by hand.  README.md becomes a page for each of its sections; tutorials and docs/how_it_works.py run,
and show what they print; commands, functions, primitives and the C interface are asked for what they are.  A link to a
file or folder of the repository that has no page gets one that shows it.  --quick leaves out the running of tutorials.
"""

import argparse
import os
import shutil
from pathlib import Path

import commands
import links
from pages import ROOT, Site


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/site")
    options.add_argument("--quick", action="store_true", help="does not run the tutorials")
    given = options.parse_args()
    folder, sources = given.folder.resolve(), given.folder.resolve().with_suffix(".sources")
    for old in (folder, sources):
        shutil.rmtree(old, ignore_errors=True)
    os.environ["TERMINAL_WIDTH"] = os.environ["COLUMNS"] = "100"

    site = Site(sources)
    site.readme()
    for path in ("CONTRIBUTING.md", "CHANGELOG.md", "tensor_ir/SYNTAX.md", "docs/errors.md", "docs/coming_from.md"):
        site.markdown(path)
    site.told("docs/how_it_works.py")
    for path in sorted((ROOT / "tutorials").glob("*.py")):
        site.told(path.relative_to(ROOT), is_run=not given.quick)
    site.c_interface()
    site.primitives()
    site.write("commands", commands.page())
    shutil.copy(ROOT / "docs/python.rst", sources)
    site.shown_files()

    from sphinx.cmd.build import build_main

    status = build_main(["-q", "-n", "-W", "--keep-going", "-c", str(Path(__file__).parent), str(sources), str(folder)])
    broken = links.broken_in_html(folder)
    print("\n".join([f"broken link: {each}" for each in broken] or [f"{folder / 'index.html'}"]))
    raise SystemExit(status or bool(broken))


if __name__ == "__main__":
    main()
