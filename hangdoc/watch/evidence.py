"""The evidence of hangs on disk: bundle, report and page. If its size is limited, the oldest hangs are removed first."""

import contextlib
import io
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.render.text import report
from hangdoc.snapshot import Snapshot

Page = Callable[[Snapshot, Diagnosis], str]
"""Makes the page."""
_OURS = re.compile(r"(hangdoc-hang-\d{8}-\d{6}-[0-9a-z-]+)\.(?:hangdoc|txt|html)")
_ASIDE = re.compile(r"\.hangdoc-hang-\d{8}-\d{6}-[0-9a-z-]+\.(?:hangdoc|txt|html)\..+")
_LEFT_OVER_SECONDS = 3600.0


class Kept(msgspec.Struct, frozen=True):
    """The files of one hang, and the text of its report."""

    bundle: Path
    report: Path
    page: Path
    text: str


class EvidenceDirectory:
    """A directory of evidence. `most` is the limit in bytes, None for no limit."""

    def __init__(self, folder: Path, page: Page, most: int | None = None) -> None:
        self._folder, self._page, self._most = folder, page, most

    def keep(self, snapshot: Snapshot, diagnosis: Diagnosis, hang: str) -> Kept:
        """Write bundle, report and page, named after the time and the hang's id. Then remove the oldest hangs, but never this
        one, until the rest is within the limit. Raises BundleError."""
        console = Console(width=shutil.get_terminal_size((100, 24)).columns, record=True, file=io.StringIO())
        report(diagnosis, console)
        text = console.export_text()
        stem = time.strftime(f"hangdoc-hang-%Y%m%d-%H%M%S-{hang}", time.gmtime())
        number = 0
        while (bundle := self._folder / f"{stem}{f'-{number}' if number else ''}.hangdoc").exists():
            number += 1
        codec.write(snapshot, bundle)
        written, shown = bundle.with_suffix(".txt"), bundle.with_suffix(".html")
        codec.write_aside(written, text.encode())
        codec.write_aside(shown, self._page(snapshot, diagnosis).encode())
        self.prune(bundle.stem)
        return Kept(bundle, written, shown, text)

    def prune(self, newest: str | None = None) -> int:
        """Remove the oldest hangs, but never the `newest`, until the rest is within the limit. Returns how many were removed.
        Files with other names stay."""
        if self._most is None:
            return 0
        self._remove_half_written()
        hangs = self._hangs()
        total, removed = sum(size for files in hangs.values() for size in files.values()), 0
        for stem in sorted(hangs):  # names begin with the time
            if total <= self._most:
                break
            if stem == newest:
                continue
            for path, size in hangs[stem].items():
                with contextlib.suppress(OSError):
                    path.unlink()
                    total -= size
            removed += 1
        return removed

    def bytes(self) -> int:
        """Size of all hangs in the directory, in bytes."""
        return sum(size for files in self._hangs().values() for size in files.values())

    def _hangs(self) -> dict[str, dict[Path, int]]:
        """The files of each hang, with their sizes in bytes."""
        found: dict[str, dict[Path, int]] = {}
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if (ours := _OURS.fullmatch(path.name)) is not None:
                    with contextlib.suppress(OSError):
                        found.setdefault(ours[1], {})[path] = path.stat().st_size
        return found

    def _remove_half_written(self) -> None:
        """Remove files that a watch left when it was killed during a write."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if _ASIDE.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        if time.time() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                            path.unlink()
