"""Links that lead nowhere: in pages of HTML, and from files in Markdown to others of the repository.

Addresses with a scheme (https:, mailto:, data:) are outside, and nobody asks for them.
"""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from marked import headings, links, slug


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links = {"", "top"}, []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name in ("href", "src") and value is not None:
                self.links.append(value)


def inside(names: list[str]) -> list[str]:
    return [name for name in names if not urlsplit(name).scheme and not urlsplit(name).netloc]


def broken_in_html(folder: Path) -> list[str]:
    """ "page: link" of each link that names no file of the folder, or no anchor of a page."""
    folder = folder.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}

    def is_there(path: Path, link: str) -> bool:
        parts = urlsplit(link)
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        if target in pages:
            return unquote(parts.fragment) in pages[target].anchors
        return target.is_file() and target.is_relative_to(folder)

    return [
        f"{path.relative_to(folder)}: {link}"
        for path, page in pages.items()
        for link in inside(page.links)
        if not is_there(path, link)
    ]


def broken_in_markdown(path: Path) -> list[str]:
    """ "file: link" of each link that names no file, or no heading of one."""

    def is_there(link: str) -> bool:
        parts = urlsplit(link)
        target = path.parent / unquote(parts.path) if parts.path else path
        if not parts.fragment or target.suffix != ".md" or not target.exists():
            return target.exists()
        return parts.fragment in map(slug, headings(target.read_text(encoding="utf-8")))

    return [f"{path.name}: {link}" for link in inside(links(path.read_text(encoding="utf-8"))) if not is_there(link)]
