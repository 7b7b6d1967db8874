"""The directory of one hang: where all ranks of a run leave what they have, and how they agree on it.

`hangdoc-<run>-<time>/` holds `rank-<n>.stacks.txt` of every rank that could dump, `host-<name>.hangdoc` of every host, and
`report.txt`. Who does what only one may do is settled by a file that only one can create.
"""

import contextlib
import os
import re
import time
from pathlib import Path

_FRESH_SECONDS = 120.0


def clean(name: str) -> str:
    """A name that may stand in a file's name."""
    return re.sub(r"[^\w.-]+", "_", name)[:48] or "run"


def claim(path: Path) -> bool:
    """Whether this process is the one that may: the file could be created. Raises OSError where nothing can be."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


class Call:
    """The call that goes out to the ranks of one host: a file beside their beacons that names the directory."""

    def __init__(self, beacons: Path, run: str) -> None:
        self._file = beacons / f"{clean(run)}.call"
        self._run = clean(run)
        self._since = time.time()

    def heard(self) -> Path | None:
        """The directory of a hang that somebody called out since this watchdog started, and lately."""
        try:
            about = self._file.stat()
            if (
                about.st_uid != os.getuid()
                or not self._since <= about.st_mtime
                or time.time() - about.st_mtime > _FRESH_SECONDS
            ):
                return None
            return Path(self._file.read_text())
        except (OSError, ValueError):
            return None

    def out(self, folder: Path) -> Path:
        """Call this directory out and make it, or another that is already called out. Raises OSError where it can't be
        made."""
        agreed = self._agreed(folder.absolute())
        agreed.mkdir(parents=True, exist_ok=True)
        return agreed

    def _agreed(self, mine: Path) -> Path:
        fresh = self._file.with_suffix(f".{os.getpid()}")
        for _ in range(3):
            if (known := self.heard()) is not None:
                return known
            try:
                fresh.write_text(str(mine))
                os.link(fresh, self._file)  # of two that call at once, one comes first
                break
            except FileExistsError:
                if self.heard() is None:  # an earlier hang's
                    self._file.unlink(missing_ok=True)
            except OSError:
                break  # the others come by their own deadlines
            finally:
                with contextlib.suppress(OSError):
                    fresh.unlink(missing_ok=True)
        return mine


def name_of_hang(run: str) -> str:
    """`hangdoc-<run>-<time, UTC>`."""
    return f"hangdoc-{clean(run)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
