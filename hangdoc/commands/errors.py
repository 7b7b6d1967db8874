"""Errors that end a command: one sentence with the remedy, and the contract's exit code."""

USAGE, NO_RANK, TOO_LITTLE_SEEN = 2, 3, 4


class CommandError(Exception):
    """Ends the command with `exit_code`. The message is shown to the user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
