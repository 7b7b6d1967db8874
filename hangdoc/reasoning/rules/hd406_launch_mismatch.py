"""The nodes were launched with settings that do not match.

## What it finds

torchrun agents of one run, on one or several hosts, with different numbers of
nodes, master addresses, ports or run ids, or two agents with the same node
rank. Also ranks without a launcher that were given different rendezvous
endpoints, or `localhost` on several hosts.

## Why it hangs

Each agent waits at its own endpoint for its own number of nodes. On a different
port, no other node arrives. `localhost` is another address on each host. Two agents with node rank 0 wait for node rank 1,
which does not exist. Without any endpoint, torchrun waits at 127.0.0.1:29500,
and `tune run` at a free port. torchrun logs nothing until its timeout: 15 minutes by
default, 10 with `--rdzv-backend c10d`.

## Example

```sh
torchrun --nnodes 2 --node-rank 0 --master-port 29500 train.py   # node 0
torchrun --nnodes 2 --node-rank 1 --master-port 29501 train.py   # <- node 1
```

## Use instead

```sh
hangdoc launch-diff node0.sh node1.sh   # before the start
torchrun --nnodes 2 --node-rank 0 --master-port 29500 train.py   # node 0
torchrun --nnodes 2 --node-rank 1 --master-port 29500 train.py   # node 1
```

## How hangdoc knows

It compares the launch commands side by side, and reads the frame in which each
launcher waits. It treats two launches on one host as one run only if they start
the same program, their ranks complete each other, and no process listens at one
of the endpoints, or one of them was given none.

## When it can be wrong

If several runs of one program wait for nodes at the same time, agents of
different runs may look like one run. If the run trains in spite of different
`--nnodes`, the finding is a warning.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from hangdoc.reasoning.model.cause import LaunchesDiffer, Part
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.runs import launch
from hangdoc.reasoning.text.next_steps import command


@about(LaunchesDiffer)
def describe(run: Run, blockage: Blockage, cause: LaunchesDiffer) -> Draft:
    return _draft(cause, 0.92, " and cannot connect")


def check(run: Run) -> Iterator[Draft]:
    """Nodes that completed the rendezvous in spite of different settings."""
    if run.launches is not None and run.launches.met:
        yield _draft(run.launches, 0.7)


def _draft(launches: LaunchesDiffer, confidence: float, so: str = "") -> Draft:
    parts = launches.parts[:8]
    by_agents = launches.parts[0].process.launch is not None
    waiting = [(part.place, frame) for part in parts if (frame := launch.in_rendezvous(part.process)) is not None]
    which = "nodes" if by_agents else "ranks"
    different = f"the {which} were launched with different settings{so}: {'; '.join(launches.differences)}"
    return Draft(
        confidence=confidence,
        culprits=launches.culprits,
        summary=_one_name(launches) if launches.one_name else different,
        evidence=[
            *(Evidence(None, "processes", f"{_name_part(part)}: {_line(part)}"[:300]) for part in parts),
            *(
                Evidence(None, "stacks", f"{place}: torchrun is waiting in {frame.function}")
                for place, frame in waiting
            ),
        ],
        remedy=_remedy(launches, by_agents),
        commands=(command("hangdoc", "launch-diff", "FILE...", note="before the next start"),),
    )


def _one_name(launches: LaunchesDiffer) -> str:
    hosts = sorted({part.host.name for part in launches.parts})
    named = " and ".join(hosts) if len(hosts) == 2 else f"{len(hosts)} hosts"
    return f"the master address is {launches.reference.address} on {named}, so each host waits for the others at itself"


def _remedy(launches: LaunchesDiffer, by_agents: bool) -> str:
    reference = launches.reference
    if any(map(launch.takes_free_port, (part.process for part in launches.parts))):
        return f"Pass `--rdzv-endpoint` with an address of {reference.host.name} on every node, and no `--standalone`."
    if launches.one_name:
        return f"Use an address of {reference.host.name} as the master address on all hosts: localhost is each host itself."
    wrong = sorted(part.place for part in launches.wrong)
    but = f"{', '.join(wrong)} {'does' if len(wrong) == 1 else 'do'} not match {reference.place}"
    if any(part.init_method != reference.init_method for part in launches.wrong):
        return f"Pass the same init_method on every rank: {but}."
    each, except_for = ("node", "--node-rank") if by_agents else ("rank", "RANK and LOCAL_RANK")
    return f"Launch every {each} with the same command, except for {except_for}: {but}."


def _name_part(part: Part) -> str:
    return part.place if "pid" in part.place else f"{part.place}, pid {part.process.pid}"


def _line(part: Part) -> str:
    """The launch command. For a rank without a launcher, with the variables of its rendezvous."""
    line = " ".join(part.process.argv)
    if part.process.launch is not None:
        return line
    place = f"MASTER_ADDR={part.address} MASTER_PORT={part.port}" if part.init_method is None else ""
    return " ".join(filter(None, (f"RANK={part.number} WORLD_SIZE={part.nodes}", place, line)))
