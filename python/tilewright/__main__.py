"""`python -m tilewright` is `tw`."""

from .cli import main

main()
