"""Docstrings as they stand in the sources, made into what Sphinx reads.

A name between backticks with a colon begins what is said of an argument, until the next one or the paragraph's end:
there, such arguments become a list.  What is indented behind a colon is code.
"""

import re

ARGUMENT = re.compile(r"(?:^|(?<=[.;…])  )((?:`\w+`(?:, | and )?)+(?:, beside [^:`]*)?): ")


def joined(lines: list[str]) -> str:
    """A paragraph in one line; two spaces end a sentence."""
    return re.sub(r"(?<=[.;…])\n", "  ", "\n".join(lines)).replace("\n", " ")


def with_arguments(paragraph: list[str]) -> list[str]:
    first, *named = ARGUMENT.split(joined(paragraph))
    if not named:
        return paragraph
    lines = [first, ""] if first else []
    for names, text in zip(named[::2], named[1::2], strict=True):
        lines += [names, f"    {text[0].upper()}{text[1:]}"]
    return lines


def readable(lines: list[str]) -> list[str]:
    """The lines of a docstring in reStructuredText."""
    made, paragraph = [], []
    for at, line in enumerate([*lines, ""]):
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        made += with_arguments(paragraph)
        paragraph = []
        is_code_next = at + 1 < len(lines) and lines[at + 1].startswith("    ")
        if not line and is_code_next and made and re.search(r"[^:]:$", made[-1]):
            made[-1] += ":"
        made.append(line)
    return made
