"""Where hangdoc's single file is."""

import os
import sys
from pathlib import Path


def find_portable() -> Path | None:
    """The file hangdoc.pyz from which this process runs, else the one that HANGDOC_PYZ names, else the one beside the `hangdoc`
    command; None if there is none."""
    started, named = Path(sys.argv[0]), os.environ.get("HANGDOC_PYZ", "")
    places = [started] if started.suffix == ".pyz" else []
    places += [Path(named)] if named else []
    places += [folder / "hangdoc.pyz" for folder in dict.fromkeys((started.parent, Path(sys.executable).parent))]
    return next((place.absolute() for place in places if place.is_file()), None)
