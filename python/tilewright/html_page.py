"""The frame of pages that are read without a network."""

import os
from html import escape

from .error import Error

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #111827; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 3rem; border-top: 2px solid #e5e7eb; padding-top: 1.5rem }
table { border-collapse: collapse; margin: 1rem 0 } th, td { text-align: left; padding: .2rem .8rem .2rem 0 }
td { overflow-wrap: anywhere } pre { white-space: pre-wrap } p { color: #4b5563; max-width: 75ch }
"""


def html_page(title: str, body: str, head: str = "") -> str:
    """`body` and `head` are HTML, `title` is text."""
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def write_page(path: str | os.PathLike[str], page: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise Error("TW1001", f"{os.fspath(path)} cannot be written: {error.strerror}") from None
