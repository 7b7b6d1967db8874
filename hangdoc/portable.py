"""hangdoc.pyz: hangdoc and all that it needs in one file (scripts/portable)."""

import os
import sys
from pathlib import Path

NAME = "hangdoc.pyz"
_MOST_LINE = 4096


def find_portable() -> Path | None:
    """The file that this process runs from, else the one that HANGDOC_PYZ names, else the one beside the command `hangdoc`."""
    if (running := running_from()) is not None:
        return running
    if (named := os.environ.get("HANGDOC_PYZ")) is not None:
        return Path(named) if Path(named).is_file() else None
    import shutil  # which loads four libraries for compressed files

    command = shutil.which("hangdoc", path=f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '')}")
    beside = Path(command).resolve().with_name(NAME) if command is not None else None
    return beside if beside is not None and beside.is_file() else None


def running_from() -> Path | None:
    """The file that this process runs from; None for an installed hangdoc."""
    main = Path(getattr(sys.modules["__main__"], "__file__", None) or "/")
    return main.parent if main.name == "__main__.py" and main.parent.is_file() else None


def find_launcher_python(launcher: str) -> str | None:
    """The interpreter in the first line of a launcher on the PATH (torchrun); None if it names none by an absolute path."""
    import shutil

    try:
        with open(shutil.which(launcher) or "", "rb") as file:
            line = os.fsdecode(file.readline(_MOST_LINE)).rstrip("\n")
    except OSError:
        return None
    python = line.removeprefix("#!").strip()
    return python if line.startswith("#!/") and os.path.basename(python).startswith("python") else None
