"""Records a look as a bundle of the fast suite's corpus, without what belongs to the recording machine."""

import re
from pathlib import Path

import msgspec

from hangdoc import codec
from hangdoc.snapshot import Environment, Process, Snapshot

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"

# A recording is published: of the recording machine's environment only what belongs to the run stays in it.
_OF_THE_RUN = re.compile(
    r"^(RANK|.*_RANK|.*_SIZE|MASTER_.*|TORCH.*|NANOCHAT.*|OMP_.*|GLOO.*|NCCL.*|ACCELERATE_.*|GRAD_ACCUM|DATA_DIR|XDG_RUNTIME_DIR)$"
)


def publishable(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the recording machine's own variables and name."""
    host = snapshot.hosts[0]

    def strip(process: Process) -> Process:
        if not isinstance(process.environment, Environment):
            return process
        kept = {name: value for name, value in process.environment.variables.items() if _OF_THE_RUN.match(name)}
        return msgspec.structs.replace(process, environment=Environment(variables=kept))

    processes = tuple(strip(process) for process in host.processes)
    return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, name="demo", processes=processes),))


def bundle(name: str) -> Path:
    """Where the recording of a case lies."""
    return CORPUS / f"{name}.hangdoc"


def record(name: str, snapshot: Snapshot) -> None:
    """Write it."""
    codec.write(publishable(snapshot), bundle(name))
