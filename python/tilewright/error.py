"""The one exception that a user's mistake raises."""


class Error(RuntimeError):
    """A mistake in a model, an input, an artifact or a schedule.

    `code` is stable ("TW1003", see docs/errors.md); the text starts with it and says where, why and what to do.
    """

    def __init__(self, code: str, message: str):
        super().__init__(f"{code} {message}")
        self.code = code
