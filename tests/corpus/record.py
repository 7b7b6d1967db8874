"""Records every scenario of the trainer as a bundle: `make corpus`. The recorded runs are what the fast suite replays."""

import re
import sys
from pathlib import Path

import msgspec

from hangdoc import codec
from hangdoc.observe.observe import Options, observe
from hangdoc.snapshot import Environment, Process, Snapshot
from hangdoc_trainer.scenarios import SCENARIOS, Started

FOLDER = Path(__file__).parent


# A recording is published: of the recording machine's environment only what belongs to the run stays in it.
_OF_THE_RUN = re.compile(
    r"^(RANK|.*_RANK|.*WORLD_SIZE|MASTER_.*|TORCH.*|NANOCHAT.*|OMP_.*|GLOO.*|NCCL.*|XDG_RUNTIME_DIR)$"
)


def publishable(snapshot: Snapshot) -> Snapshot:
    """The snapshot without the recording machine's own variables."""
    host = snapshot.hosts[0]

    def strip(process: Process) -> Process:
        if not isinstance(process.environment, Environment):
            return process
        kept = {name: value for name, value in process.environment.variables.items() if _OF_THE_RUN.match(name)}
        return msgspec.structs.replace(process, environment=Environment(variables=kept))

    processes = tuple(strip(process) for process in host.processes)
    return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, name="demo", processes=processes),))


def main(names: list[str]) -> None:
    """Record these scenarios, or all."""
    for name in names or sorted(SCENARIOS):
        with Started(SCENARIOS[name]) as run:
            codec.write(publishable(observe(Options(pids=run.pids))), FOLDER / f"{name}.hangdoc")
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
