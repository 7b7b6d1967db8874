"""The training data of each rank: directories named in its environment and command line, and those of open files.

Only names and sizes are read, and only a limited number. A directory on a dead mount (NFS) may never respond, so each is
listed in a thread of its own, which is abandoned after a time limit.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import PurePath

from hangdoc.observe.observation import Observation, ProbeResult, Target
from hangdoc.procfs import ProcError
from hangdoc.regex import regex
from hangdoc.snapshot import DataSource, DataSources, Unavailable

SUFFIXES = frozenset(
    [
        ".parquet",
        ".arrow",
        ".bin",
        ".idx",
        ".tar",
        ".jsonl",
        ".json.gz",
        ".jsonl.gz",
        ".jsonl.zst",
        ".csv",
        ".tsv",
        ".npy",
        ".npz",
        ".tfrecord",
        ".h5",
        ".hdf5",
        ".lmdb",
        ".mds",
        ".zarr",
        ".txt.gz",
        ".feather",
        ".orc",
        ".tfrecords",
        ".recordio",
        ".webdataset",
    ]
)
_ENDINGS = tuple(SUFFIXES)
_MAX_FILES = 200_000
_BOUND_SECONDS = 3.0
_DATA_NAME = regex(r"(?i)(data|corpus|shard|train|input|token|parquet|dir|path|root|base)")
_OF_TOOLS = regex(
    r"(PYENV|CONDA|MAMBA|VIRTUAL_ENV|UV|POETRY|PYTHON|XDG|LD|NVM|CUDA|CUDNN|JAVA|GO|CARGO|RUSTUP|MODULE|LMOD|SLURM|SSH|DBUS|TORCH|"
    r"TRITON|NCCL|GLOO|MPI|OMPI|PMI|PMIX)[A-Z0-9_]*|(OLD)?PWD|PATH|HOME|TMP|TEMP|TMPDIR"
)
"""Variables of shells, package managers and launchers, which do not name training data (PYENV_DIR is pyenv's working
directory)."""
_NOT_DATA = ("/proc", "/sys", "/dev", "/usr", "/lib", "/bin", "/etc", "/run", "/var/log")


class TrainingData:
    """The probe."""

    name = "data"

    def __init__(self) -> None:
        self._found: dict[int, DataSources | Unavailable] = {}

    def open(self, observation: Observation) -> None:
        """Nothing."""

    def during(self, observation: Observation) -> None:
        """List the directories, each once per mount namespace."""
        pool = ThreadPoolExecutor(8, thread_name_prefix="data")
        listings: dict[tuple[str, str], Future[tuple[int, int, tuple[str, ...], str] | None]] = {}
        wanted: dict[int, list[tuple[str, str, tuple[str, str]]]] = {}
        for target in observation.ranks():
            if target.state in "ZX":
                continue
            try:
                namespace = observation.proc.link(f"{target.pid}/ns/mnt")
            except ProcError as error:
                self._found[target.pid] = Unavailable(reason=str(error))
                continue
            wanted[target.pid] = []
            for path, origin in _candidates(observation, target).items():
                key = (namespace, path)
                if key not in listings:
                    listings[key] = pool.submit(list_shards, f"{observation.proc.root}/{target.pid}/root{path}")
                wanted[target.pid].append((path, origin, key))
        pool.shutdown(wait=False)
        for pid, candidates in wanted.items():
            sources = []
            for path, origin, key in candidates:
                try:
                    listing = listings[key].result(observation.deadline.remaining(_BOUND_SECONDS))
                except FutureTimeout:
                    observation.problems.append(
                        f"data directory {path} could not be listed within {_BOUND_SECONDS:.0f} s (a dead mount?)"
                    )
                    continue
                if listing is not None:
                    files, size, suffixes, digest = listing
                    sources.append(
                        DataSource(
                            path=path,
                            origin=origin,
                            files=files,
                            bytes=size,
                            suffixes=suffixes,
                            digest=digest,
                        )
                    )
            self._found[pid] = DataSources(sources=tuple(sources))

    def close(self, observation: Observation) -> None:
        """Nothing."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """Each rank's directories."""
        for pid, sources in list(self._found.items()):
            yield pid, "data", sources


def _candidates(observation: Observation, target: Target) -> dict[str, str]:
    """`named_folders` of a process, including the directories of its open data files."""
    try:
        cwd = observation.proc.link(f"{target.pid}/cwd")
    except ProcError:
        cwd = "/"
    try:
        opened = [link for link in observation.proc.links(f"{target.pid}/fd").values() if is_data_file(link)]
    except ProcError:
        opened = []
    environment = target.environment if isinstance(target.environment, dict) else {}
    return named_folders({**environment, **target.live_environment}, target.argv, cwd, opened)


def named_folders(
    environment: Mapping[str, str], argv: tuple[str, ...], cwd: str, opened: Iterable[str] = ()
) -> dict[str, str]:
    """Absolute paths that may be data directories, with where each was found; the most likely first, at most 24."""
    found: dict[str, str] = {}

    def add(text: str, origin: str) -> None:
        text = text.strip("'\"")
        if not text or "\0" in text or "://" in text or len(text) > 1000:
            return
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(text) if text[0] != "~" else text))
        if "*" in path:
            path = path[: path.index("*")].rpartition("/")[0]
        if is_data_file(path):
            path = str(PurePath(path).parent)
        if path.startswith("/") and path != "/" and not path.startswith(_NOT_DATA):
            found.setdefault(path, origin)

    for name, value in environment.items():
        if _DATA_NAME.search(name) and "/" in value and ":" not in value and not _OF_TOOLS.fullmatch(name):
            add(value, name)
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if equals and _DATA_NAME.search(option):
            add(value, option)
        elif (
            index
            and argv[index - 1].startswith("-")
            and _DATA_NAME.search(argv[index - 1])
            and not word.startswith("-")
        ):
            add(word, argv[index - 1])
        elif index > 1 and "/" in word and not word.startswith("-") and not word.endswith(".py"):
            add(word, "argument")
    for link in opened:
        add(link, "open file")
    return dict(list(found.items())[:24])


def is_data_file(path: str) -> bool:
    """Whether a path looks like a shard of training data."""
    return path.endswith(_ENDINGS)


def list_shards(folder: str) -> tuple[int, int, tuple[str, ...], str] | None:
    """(files, bytes, suffixes, digest) of the shards in a folder and one level below; None if it can't be listed."""
    entries: list[tuple[str, int]] = []
    kinds: Counter[str] = Counter()
    try:
        with os.scandir(folder) as items:
            listed = list(items)
        for item in list(listed):
            if item.is_dir(follow_symlinks=False) and len(listed) < _MAX_FILES and not item.name.startswith("."):
                try:
                    with os.scandir(item.path) as below:
                        listed += list(below)
                except OSError:
                    continue
        for item in listed[:_MAX_FILES]:
            if is_data_file(item.name):
                try:
                    size = item.stat().st_size
                except OSError:
                    size = -1
                entries.append((item.path.removeprefix(folder).lstrip("/"), size))
                kinds[os.path.splitext(item.name)[1]] += 1
    except OSError:
        return None
    digest = hashlib.sha256(repr(sorted(entries)).encode()).hexdigest()[:16]
    size = sum(size for _, size in entries if size > 0)
    return len(entries), size, tuple(kind for kind, _ in kinds.most_common(3)), digest
