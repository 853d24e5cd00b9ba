"""Markdown as text: what in it is code, its links, headings and sections."""

import re
from collections.abc import Callable

# A fenced block, or a span between backticks.
CODE = re.compile(r"^( *)(`{3,}).*?^\1\2`*$|(`+)(?!`).+?(?<!`)\3(?!`)", re.M | re.S)
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*$", re.M | re.S)
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")


def outside(pattern: re.Pattern, text: str, change: Callable[[str], str]) -> str:
    """`change` made of all that the pattern does not match."""
    parts, at = [], 0
    for found in pattern.finditer(text):
        parts += [change(text[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*parts, change(text[at:])])


def links(text: str) -> list[str]:
    return LINK.findall(CODE.sub("", text))


def with_links(text: str, change: Callable[[str], str]) -> str:
    return outside(CODE, text, lambda part: LINK.sub(lambda link: change(link[0]), part))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub has it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(text: str) -> list[str]:
    return re.findall(r"^#+ (.+?) *$", FENCED.sub("", text), re.M)


def raised(text: str) -> str:
    """Headings one level higher."""
    return outside(FENCED, text, lambda part: re.sub(r"^#(#+ )", r"\1", part, flags=re.M))


def sections(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first heading of level 2, and what follows each, by heading."""
    marked = outside(FENCED, text, lambda part: re.sub(r"^## ", "\0", part, flags=re.M))
    first, *others = marked.split("\0")
    titled = [other.split("\n", 1) for other in others]
    return first, {title.strip(): body for title, body in titled}
