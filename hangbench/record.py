"""Records a look as a bundle in tests/corpus, without details of the recording machine."""

import re
from pathlib import Path

import msgspec

from hangdoc import codec
from hangdoc.snapshot import Environment, Process, Snapshot

CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
"""Looks without torch's record of calls, as with a torch before 2.11 and Gloo. They are not recorded again."""
RECORDED = CORPUS / "recorded"
"""Looks with it."""
CARD = CORPUS / "card"
"""Looks at ranks that shared one NVIDIA card (`hangbench.gpu`)."""

# Recordings are published, so they contain only environment variables that belong to the run.
_OF_THE_RUN = re.compile(
    r"^(RANK|.*_RANK|.*_SIZE|MASTER_.*|TORCH.*|NANOCHAT.*|OMP_.*|GLOO.*|NCCL.*|ACCELERATE_.*|GRAD_ACCUM|DATA_DIR|XDG_RUNTIME_DIR"
    r"|RAY_JOB_ID)$"
)


def publishable(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the variables and the name of the recording machine."""
    host = snapshot.hosts[0]

    def strip(process: Process) -> Process:
        if not isinstance(process.environment, Environment):
            return process
        kept = {name: value for name, value in process.environment.variables.items() if _OF_THE_RUN.match(name)}
        return msgspec.structs.replace(process, environment=Environment(variables=kept))

    processes = tuple(strip(process) for process in host.processes)
    return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, name="demo", processes=processes),))


def bundle(name: str) -> Path:
    """The path of a case's recording."""
    return RECORDED / f"{name}.hangdoc"


def record(path: Path, snapshot: Snapshot) -> None:
    """Write the recording of a case into a file."""
    path.parent.mkdir(exist_ok=True)
    codec.write(publishable(snapshot), path)
