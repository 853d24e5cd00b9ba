"""The page of the `tw` command line, as typer knows it."""

import re

import click
import typer

from tilewright.cli import app


def page() -> str:
    lines = [
        "# The command line",
        "",
        "What `tw --help`, `tw COMMAND --help` say. A mistake ends with status 2 and an [error code](errors.md) on "
        "stderr; results go to stdout.",
    ]
    described(typer.main.get_command(app), "tw", None, lines)
    return "\n".join(lines) + "\n"


def described(command: click.Command, name: str, parent: click.Context | None, lines: list[str]) -> None:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    context.info_name = name.split()[-1]
    if parent is not None:
        lines += ["", f"{'#' * len(name.split())} `{name}`"]
    lines += ["", "```text", command.get_usage(context), "```", "", plain(command.help)]
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            term, text = record
            lines += ["", f"`{' '.join(term.split())}`", f": {plain(text) or 'See above.'}"]
    for each in getattr(command, "commands", {}).values():
        if not each.hidden:
            described(each, f"{name} {each.name}", context, lines)


def plain(text: str | None) -> str:
    """Help as Markdown: what would be marks in it are letters."""
    paragraphs = [" ".join(part.split()) for part in (text or "").split("\n\n")]
    return re.sub(r"([*_\\<>$|\[\]{}#])", r"\\\1", "\n\n".join(paragraphs))
