"""The training data of each rank: directories named in its environment and command line, and those of open files.

Only names and sizes are read, and only a limited number. A directory on a dead mount (NFS) may never respond, so it is
abandoned after a time limit.
"""

import contextlib
import functools
import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.access.process_files import NoAnswer, ProcessFiles, Root, View, files_of
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
_SAYS_DATA = regex(r"(?i)data|corpus|shard|train|input|parquet")
_SAYS_OTHER = regex(r"(?i)out|log|save|ckpt|check|cache|te?mp|result|work|model|pretrain|meta")
_NUMBER = regex(r"[-+]?[0-9][0-9_.,]*([eE][-+]?[0-9]+)?")
_SAYS_PATH = regex(r"(?i)(dir|directory|directories|path|file|folder|root)s?$")
_OF_TOOLS = regex(
    r"(PYENV|CONDA|MAMBA|VIRTUAL_ENV|UV|POETRY|PYTHON|XDG|LD|NVM|CUDA|CUDNN|JAVA|GO|CARGO|RUSTUP|MODULE|LMOD|SLURM|SSH|DBUS|TORCH|"
    r"TRITON|NCCL|GLOO|MPI|OMPI|PMI|PMIX)[A-Z0-9_]*|(OLD)?PWD|PATH|HOME|TMP|TEMP|TMPDIR"
)
"""Variables of shells, package managers and launchers, which do not name training data (PYENV_DIR is pyenv's working
directory)."""
_NOT_DATA = ("/proc", "/sys", "/dev", "/usr", "/lib", "/bin", "/etc", "/run", "/var/log")


_Folder = tuple[str, bool]
"""Its path, and whether it is certain to hold data."""
_Listing = tuple[int, int, tuple[str, ...], str]
"""Files, bytes, suffixes and digest of the shards in a folder."""


class TrainingData:
    """The probe."""

    name = "data"

    def __init__(self) -> None:
        self._found: dict[int, DataSources | Unavailable] = {}
        self._listings: dict[tuple[View, _Folder], _Listing | None] = {}
        """By who sees the folder; None for one that can't be listed."""

    def open(self, observation: Observation) -> None:
        """Nothing."""

    def during(self, observation: Observation) -> None:
        """List the directories, each once for all processes that see the same files."""
        living = [target for target in observation.ranks() if target.state not in "ZX"]
        self._found |= observation.read_each(living, lambda target: self._find_sources(observation, target))

    def _find_sources(self, observation: Observation, target: Target) -> DataSources | Unavailable:
        candidates = _find_candidates(observation, target)
        try:
            with files_of(observation.proc, target.pid, target.start_ticks) as files:
                folders = {path: (path, names_data(origin)) for path, origin in candidates.items()}
                late = self._list(files, folders.values(), observation.deadline.remaining(_BOUND_SECONDS))
        except OSError as error:
            return Unavailable(reason=f"its data directories: {error.strerror}")
        observation.late += [
            f"data directory {path} could not be listed within {_BOUND_SECONDS:.0f} s (a dead mount?)"
            for path, _ in late
        ]
        sources = []
        for path, origin in candidates.items():
            if (listing := self._listings.get((files.view, folders[path]))) is not None:
                count, size, suffixes, digest = listing
                sources.append(
                    DataSource(path=path, origin=origin, files=count, bytes=size, suffixes=suffixes, digest=digest)
                )
        return DataSources(sources=tuple(sources))

    def _list(self, files: ProcessFiles, folders: Iterable[_Folder], seconds: float) -> list[_Folder]:
        """Fill in the listings of some folders. Returns those that did not answer in time; half of it is for the first one."""
        todo = [folder for folder in folders if (files.view, folder) not in self._listings]
        late: list[_Folder] = []
        until = time.monotonic() + seconds
        while todo and (left := until - time.monotonic()) > 0:
            listed: dict[_Folder, _Listing | None] = {}
            try:
                files.run(functools.partial(_list_all, todo, listed), left / 2)
            except NoAnswer:
                late += [folder for folder in todo if folder not in listed][:1]
            self._listings |= {(files.view, folder): listing for folder, listing in dict(listed).items()}
            todo = [folder for folder in todo if folder not in listed and folder not in late]
        return late + todo

    def close(self, observation: Observation) -> None:
        """Nothing."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """Each rank's directories."""
        for pid, sources in list(self._found.items()):
            yield pid, "data", sources


def _find_candidates(observation: Observation, target: Target) -> dict[str, str]:
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
    folders: dict[str, str] = {}

    def add(text: str, origin: str) -> None:
        text = text.strip("'\"")
        if _NUMBER.fullmatch(text) and not says_path(origin):
            return  # `--per_device_train_batch_size 4`
        if not text or "\0" in text or "://" in text or len(text) > 1000:
            return
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(text) if text[0] != "~" else text))
        if "*" in path:
            path = path[: path.index("*")].rpartition("/")[0]
        if is_data_file(path):
            path = os.path.dirname(path)
        if path.startswith("/") and path != "/" and not path.startswith(_NOT_DATA):
            folders.setdefault(path, origin)

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
    return dict(list(folders.items())[:24])


def is_data_file(path: str) -> bool:
    """Whether a path looks like a shard of training data."""
    return path.endswith(_ENDINGS)


def names_data(origin: str) -> bool:
    """Whether the name of a setting says that it names training data (`--data-dir`). A `--dir` may be for anything, and outputs
    differ between ranks by design."""
    return bool(_SAYS_DATA.search(origin)) and not _SAYS_OTHER.search(origin)


def says_path(origin: str) -> bool:
    """Whether the name of a setting says that it names a path (`--data-dir`)."""
    return bool(_SAYS_PATH.search(origin))


def _list_all(folders: list[_Folder], listed: dict[_Folder, _Listing | None], root: Root) -> None:
    for path, certain in folders:
        listed[path, certain] = list_shards(root, path, any_suffix=certain)


def list_shards(root: Root, folder: str, *, any_suffix: bool = False) -> _Listing | None:
    """The shards in a folder and one level below; None if it can't be listed. If there are none, with `any_suffix` all regular
    files that are not hidden."""
    try:
        listed = root.entries(folder, _MAX_FILES)
    except OSError:
        return None
    for name, about in list(listed):
        if stat.S_ISDIR(about.st_mode) and not name.startswith(".") and len(listed) < _MAX_FILES:
            with contextlib.suppress(OSError):
                below = root.entries(os.path.join(folder, name), _MAX_FILES - len(listed))
                listed += [(os.path.join(name, inner), seen) for inner, seen in below]
    files = [entry for entry in listed if is_data_file(entry[0])]
    if not files and any_suffix:
        files = [
            entry
            for entry in listed
            if stat.S_ISREG(entry[1].st_mode) and not os.path.basename(entry[0]).startswith(".")
        ]
    shards = [(name, _read_size(root, os.path.join(folder, name), about)) for name, about in files]
    kinds = Counter(suffix for name, _ in files if (suffix := os.path.splitext(name)[1]))
    digest = hashlib.sha256(repr(sorted(shards)).encode(errors="surrogateescape")).hexdigest()[:16]
    size = sum(size for _, size in shards if size > 0)
    return len(shards), size, tuple(kind for kind, _ in kinds.most_common(3)), digest


def _read_size(root: Root, path: str, about: os.stat_result) -> int:
    """The size of a file, or of the one to which a link leads; -1 if that is unknown."""
    try:
        return (root.stat(path) if stat.S_ISLNK(about.st_mode) else about).st_size
    except OSError:
        return -1
