"""Opens bundles below the directories that the server was started with, and no other file."""

import datetime
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hangdoc import codec
from hangdoc.agents.answers import BundleRow
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.snapshot import Snapshot, merge

MAX_FILE_BYTES = codec.MAX_FILE_BYTES
MAX_FILES = 4096
_SUFFIX = ".hangdoc"
_LISTED = 10_000
"""Directory entries that a listing reads at most."""


class Confined:
    """The bundles that may be opened. A root is a bundle or a directory. The target of a link must also be below a root."""

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def read(self, asked: str) -> Snapshot:
        """The snapshot in a bundle, or in all bundles of a directory. Raises CommandError for a path that may not be opened,
        BundleError for a file that is not a bundle."""
        path = self._resolve_inside(asked)
        if not path.is_dir():
            return self._read(path)
        inside = sorted(bundle for bundle in path.glob(f"*{_SUFFIX}"))
        if not inside:
            raise CommandError(f"{path} contains no bundle (*{_SUFFIX}).", USAGE)
        if len(inside) > MAX_FILES:
            raise CommandError(
                f"{path} contains {len(inside)} bundles, but at most {MAX_FILES} can be opened together. Name one of them.",
                USAGE,
            )
        return merge(tuple(self._read(self._resolve_inside(str(bundle))) for bundle in inside))

    def listed(self) -> list[BundleRow]:
        """The bundles, the newest first."""
        statuses: dict[Path, os.stat_result] = {}
        for path in self._files():
            try:
                statuses[path] = path.lstat()
            except OSError:
                continue
        newest = sorted(statuses.items(), key=lambda item: (-item[1].st_mtime, item[0]))
        return [
            BundleRow(path=str(path), bytes=status.st_size, written=_format_time(status.st_mtime))
            for path, status in newest
            if stat.S_ISREG(status.st_mode)
        ]

    def _files(self) -> Iterator[Path]:
        looked = 0
        for root in self.roots:
            if root.is_file():
                yield root
                continue
            for folder, folders, files in os.walk(root):
                folders.sort()
                looked += len(files) + 1
                yield from (Path(folder, name) for name in files if name.endswith(_SUFFIX))
                if looked > _LISTED:
                    return

    def _resolve_inside(self, asked: str) -> Path:
        if not self.roots:
            raise CommandError(
                "this server may not open bundles. To allow those of a directory, start it with `hangdoc mcp --bundles DIR`.",
                USAGE,
            )
        if "\0" in asked:
            raise CommandError("a path must not contain a NUL character.", USAGE)
        for root in self.roots:
            base = root if root.is_dir() else root.parent
            try:
                real = Path(os.path.realpath(base / asked, strict=True))
            except OSError:
                continue
            if self._is_below_a_root(real):
                return real
        allowed = ", ".join(map(str, self.roots))
        raise CommandError(
            f"{asked[:200]!r} cannot be opened: it does not exist, or it is not below {allowed[:500]}. "
            "`list_runs` lists the bundles that this server may open.",
            USAGE,
        )

    def _is_below_a_root(self, real: Path) -> bool:
        return any(real == root or real.is_relative_to(root) for root in self.roots)

    def _read(self, path: Path) -> Snapshot:
        """Read a regular file. Checks its path again after opening it, because a directory may have become a link meanwhile."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise codec.BundleError(f"cannot read {path}: {error.strerror}.") from None
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise CommandError(f"{path} is not a regular file.", USAGE)
            if not self._is_below_a_root(Path(os.readlink(f"/proc/self/fd/{handle}"))):
                raise CommandError(f"{path} was moved while hangdoc opened it. Try again.", USAGE)
            if status.st_size > MAX_FILE_BYTES:
                raise CommandError(f"{path} has {status.st_size} bytes. A bundle has at most {MAX_FILE_BYTES}.", USAGE)
            return codec.decode(file.read(MAX_FILE_BYTES), str(path))


def _format_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="seconds")
