"""What a person types to start the programs that hangdoc suggests."""

import contextlib
import os
import shlex
import sys

from hangdoc.observe.stacks.pyspy import executable
from hangdoc.portable import running_from

_HANGDOC, _PY_SPY = "hangdoc", "py-spy"
_OF_SUDO = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH that sudo gives a command (secure_path of sudoers(5)), as Debian has it: no virtual environment is in it."""


def typed_programs() -> dict[str, str]:
    """By name, for hangdoc, hangdoc after `sudo`, and py-spy: the name, if the PATH leads to the program that this process is or
    uses; or else its path, and `sh` before that of the one file."""
    search, file = os.environ.get("PATH", ""), running_from()
    path = file or (sys.argv[0] if os.path.basename(sys.argv[0]) == _HANGDOC else None)

    def typed(folders: str) -> str:
        hangdoc = _name_or_path(_HANGDOC, path, folders)
        return f"sh {hangdoc}" if file is not None and hangdoc != _HANGDOC else hangdoc

    return {
        _HANGDOC: typed(search),
        f"sudo {_HANGDOC}": f"sudo {typed(_OF_SUDO)}",
        _PY_SPY: _name_or_path(_PY_SPY, executable(), search),
    }


def _name_or_path(name: str, path: str | os.PathLike[str] | None, search: str) -> str:
    if path is None:
        return name
    places = (os.path.join(folder, name) for folder in search.split(":") if folder)
    first = next((place for place in places if os.access(place, os.X_OK)), None)
    with contextlib.suppress(OSError):  # the program that was started may be gone
        if first is not None and os.path.samefile(first, path):
            return name
    return shlex.quote(os.path.abspath(path))
