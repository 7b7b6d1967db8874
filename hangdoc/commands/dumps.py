"""The evidence in a directory of torch's dumps."""

from pathlib import Path

from hangdoc.commands.errors import NO_RANK, USAGE, CommandError
from hangdoc.dumps.dump_snapshot import read_dumps
from hangdoc.dumps.folder import FolderError
from hangdoc.snapshot import Snapshot

_PLACES = (
    "torch writes them where TORCH_FR_DUMP_TEMP_FILE says, by default to ~/.cache/torch/comm_lib_trace_rank_N; older versions to "
    "~/.cache/torch/nccl_trace_rank_N or /tmp/nccl_trace_rank_N"
)


def dumps_evidence(path: Path, seconds: float) -> Snapshot:
    """The ranks whose dumps are in a directory, read for at most so many seconds. Raises CommandError if there is none."""
    try:
        snapshot = read_dumps(path, seconds)
    except FolderError as error:
        raise CommandError(
            f"{path} {error}. Name the directory with torch's dumps, one for each rank.", USAGE
        ) from None
    if not any(host.processes for host in snapshot.hosts):
        problems = "; ".join(problem for host in snapshot.hosts for problem in host.problems) or "it is empty"
        raise CommandError(f"no dump of torch's flight recorder is in {path}: {problems}. {_PLACES}.", NO_RANK)
    return snapshot
