"""What commands say beside their results, and what the library logs while they run."""

import logging

from rich.console import Console

notes = Console(highlight=False, markup=False, soft_wrap=True, stderr=True)


def note(text: str) -> None:
    """To stderr."""
    notes.print(text, style="dim")


class Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


def show_warnings() -> None:
    """Of the library; those of a tuning job are in what `tw tune` shows itself."""
    handler = Notes(logging.WARNING)
    handler.addFilter(lambda record: record.name != "tilewright.tuning")
    logging.getLogger("tilewright").addHandler(handler)
