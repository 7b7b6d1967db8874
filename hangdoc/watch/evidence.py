"""The evidence of hangs on disk: bundle, report and page. If its size is limited, the oldest hangs are removed first."""

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType

import msgspec

from hangdoc import codec, file_writer
from hangdoc.diagnosis import Diagnosis
from hangdoc.render.console import record_console
from hangdoc.render.text import Programs, report
from hangdoc.snapshot import Snapshot

Page = Callable[[Snapshot, Diagnosis], str]
"""Makes the page."""
_OURS = re.compile(r"(hangdoc-hang-\d{8}-\d{6}-[0-9a-z-]+)\.(?:hangdoc|txt|html)")
_ASIDE = re.compile(r"\.hangdoc-hang-\d{8}-\d{6}-[0-9a-z-]+\.(?:hangdoc|txt|html)\..+")
_LEFT_OVER_SECONDS = 3600.0


class Kept(msgspec.Struct, frozen=True):
    """The files of one hang, and the text of its report. A file that could not be written is None."""

    bundle: Path | None
    report: Path | None
    page: Path | None
    text: str
    problem: str | None = None
    """One sentence: what could not be written, and why."""


class EvidenceDirectory:
    """A directory of evidence. `most` is the limit in bytes, None for no limit. `closing` is the last line of each report: what
    happens to the run next. `programs`: what the reader types for those that the report suggests. `margin`: how many columns of
    the terminal a report leaves free, for what precedes its lines."""

    def __init__(
        self,
        folder: Path,
        page: Page,
        most: int | None = None,
        closing: str | None = None,
        programs: Programs = MappingProxyType({}),
        margin: int = 0,
    ) -> None:
        self._folder, self._page, self._most, self._closing = folder, page, most, closing
        self._programs, self._margin = programs, margin

    def keep(self, snapshot: Snapshot, diagnosis: Diagnosis, hang: str) -> Kept:
        """Write bundle, report and page, named after the time and the hang's id. Then remove the oldest hangs, but never this
        one, until the rest is within the limit. What can't be written is missing in the result: a full disk must not delay
        the messages about a hang."""
        console = record_console(shutil.get_terminal_size((100, 24)).columns - self._margin)
        report(diagnosis, console, programs=self._programs)
        text = console.export_text() + (f"\n{self._closing}\n" if self._closing is not None else "")
        stem = time.strftime(f"hangdoc-hang-%Y%m%d-%H%M%S-{hang}", time.gmtime())
        number = 0
        while (bundle := self._folder / f"{stem}{f'-{number}' if number else ''}.hangdoc").exists():
            number += 1
        problems: list[str] = []

        def write(suffix: str, content: Callable[[], bytes]) -> Path | None:
            path = bundle.with_suffix(suffix)
            try:
                file_writer.write_file(path, content())
            except file_writer.WriteError as error:
                problems.append(str(error))
                return None
            return path

        kept = Kept(
            write(".hangdoc", lambda: codec.encode(snapshot)),
            write(".txt", lambda: text.encode("utf-8", "replace")),
            write(".html", lambda: self._page(snapshot, diagnosis).encode("utf-8", "replace")),
            text,
        )
        self.prune(bundle.stem)
        return msgspec.structs.replace(kept, problem=problems[0] if problems else None)

    def prune(self, newest: str | None = None) -> int:
        """Remove the oldest hangs, but never the `newest`, until the rest is within the limit. Returns how many were removed.
        Files with other names stay."""
        if self._most is None:
            return 0
        with self._files() as (folder, sizes):
            hangs: dict[str, list[str]] = {}
            for name in sizes:
                if (ours := _OURS.fullmatch(name)) is not None:
                    hangs.setdefault(ours[1], []).append(name)
            total, removed = sum(sizes[name] for names in hangs.values() for name in names), 0
            for stem in sorted(hangs):  # names begin with the time
                if total <= self._most:
                    break
                if stem == newest:
                    continue
                for name in hangs[stem]:
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                        total -= sizes[name]
                removed += 1
        return removed

    def bytes(self) -> int:
        """Size of all hangs in the directory, in bytes."""
        with self._files() as (_, sizes):
            return sum(size for name, size in sizes.items() if _OURS.fullmatch(name))

    @contextlib.contextmanager
    def _files(self) -> Iterator[tuple[int, dict[str, int]]]:
        """The directory as a descriptor, and the sizes in bytes of the regular files of this user in it that hangdoc named. Files
        that a watch left when it was killed during a write are removed. Without the directory there are none."""
        try:
            folder = file_writer.open_folder(self._folder)
        except OSError:
            yield -1, {}
            return
        try:
            sizes = {}
            with contextlib.suppress(OSError):
                for name in os.listdir(f"/proc/self/fd/{folder}"):
                    if not (_OURS.fullmatch(name) or _ASIDE.fullmatch(name)):
                        continue
                    with contextlib.suppress(OSError):
                        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                            continue
                        if _OURS.fullmatch(name):
                            sizes[name] = status.st_size
                        elif time.time() - status.st_mtime > _LEFT_OVER_SECONDS:
                            os.unlink(name, dir_fd=folder)
            yield folder, sizes
        finally:
            os.close(folder)
