"""What a person types to start the programs that hangdoc suggests."""

import contextlib
import os
import shlex
import sys

from hangdoc.observe.stacks.pyspy import executable
from hangdoc.portable import running_from

_HANGDOC, _PY_SPY = "hangdoc", "py-spy"


def typed_programs() -> dict[str, str]:
    """By name, for hangdoc and py-spy: the name, if the PATH leads to the program that this process is or uses; or else its path,
    and `sh` before that of the one file."""
    file = running_from()
    hangdoc = _name_or_path(_HANGDOC, file or (sys.argv[0] if os.path.basename(sys.argv[0]) == _HANGDOC else None))
    shell = "sh " if file is not None and hangdoc != _HANGDOC else ""
    return {_HANGDOC: f"{shell}{hangdoc}", _PY_SPY: _name_or_path(_PY_SPY, executable())}


def _name_or_path(name: str, path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return name
    places = (os.path.join(folder, name) for folder in os.environ.get("PATH", "").split(":") if folder)
    first = next((place for place in places if os.access(place, os.X_OK)), None)
    with contextlib.suppress(OSError):  # the program that was started may be gone
        if first is not None and os.path.samefile(first, path):
            return name
    return shlex.quote(os.path.abspath(path))
