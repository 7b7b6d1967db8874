"""Whether a file or directory of a launch is there for this user."""

import os
import stat

MISSING = "it does not exist"
ASK_ITS_USER = (
    "Run preflight as the user who will start the launch. If you are that user, get access: the launch needs it too."
)
"""The remedy for a path that this user may not look for."""


def find_absence(path: str) -> str | None:
    """`MISSING` if nothing is at a path, or why this user may not look for it or read it. None if it is there, or if it could not
    be looked for."""
    try:
        about = os.stat(os.path.expanduser(path))
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except PermissionError as error:
        return error.strerror
    except (OSError, ValueError):
        return None
    needed = os.R_OK | (os.X_OK if stat.S_ISDIR(about.st_mode) else 0)
    return None if os.access(os.path.expanduser(path), needed) else "Permission denied"
