"""What commands say beside their results."""

from rich.console import Console

notes = Console(highlight=False, soft_wrap=True, stderr=True)


def note(text: str) -> None:
    """To stderr."""
    notes.print(text, style="dim")
