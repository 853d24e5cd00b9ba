"""What long calls show while they run, where somebody watches: in notebooks, at Python's prompt, and by `tw`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


def is_watched() -> bool:
    """In a notebook, or at the prompt of Python or IPython; a script says itself what it wants to show."""
    return hasattr(sys, "ps1") or Console().is_jupyter


@contextmanager
def stages(wanted: bool | None) -> Iterator[Callable[[str], None]]:
    """Yields what to call with the name of each stage.  None: where somebody watches."""
    if not (is_watched() if wanted is None else wanted):
        yield lambda stage: None
        return
    console = Console(stderr=True)
    with console.status("") as status:
        yield lambda stage: status.update(stage)
