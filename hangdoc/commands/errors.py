"""Errors that end a command: one sentence with the remedy, and the contract's exit code."""

from collections.abc import Iterable, Sequence

USAGE, NO_RANK, TOO_LITTLE_SEEN = 2, 3, 4
_MOST_JOBS = 20
_MOST_SUGGESTED = 8


class CommandError(Exception):
    """Ends the command with `exit_code`. The message is shown to the user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def install_extra(extra: str) -> str:
    """How to get what an extra of the package installs."""
    return f"Install hangdoc with it: pip install '.[{extra}]' in a checkout, or 'hangdoc-VERSION-py3-none-any.whl[{extra}]'."


def suggest(asked: str, known: Iterable[str]) -> str:
    """` Did you mean shard-mismatch?`, of the names that `find_similar` finds; empty if there are none."""
    similar = find_similar(asked, known)
    return f" Did you mean {', '.join(similar)}?" if similar else ""


def find_similar(asked: str, known: Iterable[str]) -> list[str]:
    """The known names that begin with this one, or else the one that is most like it; empty if none is like it."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    begun = sorted(name for name in names if len(asked) > 1 and name.startswith(asked.lower()))
    nearest = begun[:_MOST_SUGGESTED] or get_close_matches(asked.lower(), names, n=1)
    return [names[name] for name in nearest]


def no_such_job(asked: str, jobs: Sequence[str]) -> CommandError:
    """The error for a job that a diagnosis does not have. `jobs` are the ids of its jobs, or ids with names."""
    shown = ", ".join(jobs[:_MOST_JOBS]) or "none"
    more = f", and {len(jobs) - _MOST_JOBS} more" if len(jobs) > _MOST_JOBS else ""
    return CommandError(f"there is no job {asked[:100]!r}. The jobs are: {shown}{more}.", USAGE)
