"""Some ranks or nodes reached the rendezvous, and others are missing.

## What it finds

Some ranks wait in the rendezvous while other ranks or nodes of the run are
missing. The waiting processes can also be torchrun agents that have not started
any rank yet.

## Why it hangs

The rendezvous waits until everyone has arrived, and logs nothing until its
timeout. By default, `init_process_group` waits for 30 minutes (NCCL: 10), and
torchrun for 15 (with `--rdzv-backend c10d`: 10).

## Example

```sh
# The job script of node 1.
cp -r /mnt/nfs/shards /scratch &&  # fails: the disk is full
torchrun --nnodes 2 --node-rank 1 --master-addr node0 train.py  # <- not run
```

## Use instead

```sh
# Under Slurm, a failed node ends the whole job.
srun --kill-on-bad-exit=1 bash node.sh
```

Start the missing node. If it is running, find out why it cannot reach the
master: host name, port, firewall, or a different `--nnodes`, `--rdzv-id` or
`--master-port`. Pass `--rdzv-endpoint` to `tune run`: without it, and with
torchrun's `--standalone`, each node waits at a free port of its own.

## How hangdoc knows

It reads the stacks of agents and ranks (`next_rendezvous`,
`_create_c10d_store`, `init_process_group`), the numbers of nodes and ranks in
their command lines and environments, and which of them exist. A number of ranks
that a script passes to `init_process_group` or `init_rpc` counts more than
`WORLD_SIZE`. From the memory of the process that serves the TCPStore, it reads
which keys the ranks there wait for. With Gloo, a key names the rank that has to
publish its address, so that one is certainly missing. Of processes with one
number, those that one parent started within seconds belong to one run.

## When it can be wrong

At the start of a run, the other ranks may still be importing modules. While they
make progress, and before the patience has passed, the finding is an `info`, not
an error. It stays one while another process of the job on the same host is at
work: it may copy data, and then start the missing ranks. Other hosts are not observed for this.

A torchrun that has used up its restarts ends its ranks, and nothing of their error is
left in a process. That the others were started again is shown.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
- torch/distributed/elastic/rendezvous/dynamic_rendezvous.py
"""

from collections.abc import Iterable, Iterator
from textwrap import shorten

from hangdoc.phrases import also, amount, do, minutes, numbers, timeout, verb
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import meeting_call_of
from hangdoc.reasoning.model.holds import describe_holders
from hangdoc.reasoning.model.kinds import AgentsWait, Apart, Rendezvous
from hangdoc.reasoning.model.rank import Class, numbers_of
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.runs import launch
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.call_words import awaited_keys, ranks_not_there
from hangdoc.reasoning.text.next_steps import Command, to_host
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Frame, Process
from hangdoc.torch_facts import call_names, file_names

_SHOWN = 3


@about(Rendezvous)
def _ranks(run: Run, blockage: Blockage, kind: Rendezvous) -> Draft:
    on_their_way = tuple(numbers_of(blockage.awaited))
    absent = [number for number in blockage.culprits if number not in on_their_way]
    here = list(numbers_of(kind.arrived))
    too_high = [number for number in here if run.world_size is not None and number >= run.world_size]
    sizes = list(_other_sizes(kind.arrived))
    elsewhere = [n for n in absent if n in run.unseen and run.unseen[n].elsewhere]
    unsure = not ranks_not_there(run).issuperset(elsewhere) and not _counted(kind.arrived)
    missing = (
        f"{words.do(absent, 'was', 'were')} not found there "
        f"({words.ranks(elsewhere)} may be on a host that was not observed)"
        if unsure
        else f"{words.are(absent)} missing"
    )
    whole = amount(run.world_size, "rank") if run.world_size is not None else "? ranks"
    if twice := sorted({process.identity.rank for _, process in run.duplicates if process.identity is not None}):
        missing += f", and {words.do(twice, 'was', 'were')} started more than once"
    restarts = words.restarts(kind.arrived)
    others = "; ".join([*map(_still_doing, blockage.awaited[:_SHOWN]), *([missing] if absent else [])])
    if too_high:
        remedy = f"Number the ranks from 0 to {(run.world_size or 1) - 1}."
    elif run.duplicates:
        remedy = (
            f"Give each process a rank of its own, from 0 to {(run.world_size or 1) - 1}, and start all of them again."
        )
    elif sizes:
        remedy = "Pass the number of ranks that the launcher starts, or start the missing ranks."
    elif absent and restarts:
        remedy = (
            "Read the log of the torchrun that started the missing ranks: it may have ended after its last restart "
            "(--max-restarts). End this run, and start it again on all nodes when the error is corrected."
        )
    elif absent:
        remedy = "Start the missing ranks, or find out on their node why they cannot reach the master."
    else:
        remedy = f"Find out what keeps {words.ranks(on_their_way)} from the rendezvous: look at the line of the stack."
    return Draft(
        confidence=0.6 if unsure else 0.7 if blockage.awaited else 0.9,
        summary=f"{len(here) - len(too_high)} of {whole} reached the rendezvous{_at(run.master)}; {others}"
        + (f", and {do(too_high, 'is', 'are')} too high" if too_high else ""),
        evidence=[
            *words.class_evidence(kind.arrived),
            *restarts,
            *_list_duplicates(run),
            *awaited_keys(run, kind.arrived),
            *words.unseen(run, absent),
            *words.class_evidence(blockage.awaited),
            *sizes,
            *_starting(each.first.process for each in kind.arrived if each.first.process is not None),
        ],
        remedy=remedy,
        may_end=not (absent or too_high or sizes),
        commands=_commands(run) if absent else None,
    )


def _list_duplicates(run: Run) -> list[Evidence]:
    """Which processes have one number."""
    claims: dict[int, list[int]] = {}
    for _, process in run.duplicates:
        if process.identity is not None and (first := run.ranks.get(process.identity.rank)) is not None:
            claims.setdefault(first.rank, [first.process.pid] if first.process is not None else []).append(process.pid)
    return [
        Evidence(number, "processes", f"started together as rank {number}: pids {', '.join(map(str, sorted(pids)))}")
        for number, pids in sorted(claims.items())[:_SHOWN]
    ]


def _still_doing(coming: Class) -> str:
    """What ranks do that are alive and have not come to the rendezvous."""
    work = f" ({coming.first.work})" if coming.first.work is not None else ""
    return f"{words.are(coming.ranks)} alive and still {words.doing_at(coming.first)}{work}"


def _counted(arrived: Iterable[Class]) -> bool:
    """Whether one of them counts the ranks that arrive. Only the host of the store does; a rank that connects to its peers may
    wait for one that is there."""
    frames = (frame for each in arrived if each.first.thread is not None for frame in each.first.thread.frames)
    return any(file_names.bare_name(frame.function) == call_names.CREATE_STORE for frame in frames)


@about(Apart)
def _apart(run: Run, blockage: Blockage, kind: Apart) -> Draft:
    """Ranks in a rendezvous that the others have passed or never enter: one more group, one more check."""
    arrived = [part for part in kind.parts if part.first.in_rendezvous]
    past = [part for part in kind.parts if not part.first.in_rendezvous]
    return Draft(
        confidence=0.5,
        summary=f"{words.are(numbers_of(arrived))} waiting in a rendezvous that {words.have(numbers_of(past))} not entered: "
        f"{words.are(past[0].ranks)} {words.doing(past[0].first)}",
        evidence=words.stacks(run, kind.parts),
        remedy="Compare the settings (TORCH_DISTRIBUTED_DEBUG, versions) of the ranks, and the groups that they create.",
    )


@about(AgentsWait)
def _agents(run: Run, blockage: Blockage, kind: AgentsWait) -> Draft:
    agents = [process for process, _ in kind.agents]
    nodes, absent = launch.nodes(agents[0]), launch.absent_nodes(agents)
    complete = nodes is not None and len(agents) >= nodes  # whatever node ranks they claim
    missing = "the other is missing" if nodes is not None and nodes - len(agents) == 1 else "the others are missing"
    remedy = (
        "Start torchrun on the missing node with the same --nnodes, endpoint and run id, or find out why it cannot reach "
        "this node."
    )
    if complete:
        missing = "all nodes are there, but the rendezvous is not complete"
        remedy = (
            "Find out what keeps the nodes apart: slow name resolution, a closed port, or different launch commands."
        )
    elif absent:
        ranks = f" ({words.ranks(blockage.culprits)})" if blockage.culprits else ""
        missing = f"node{'s' * (len(absent) > 1)} {numbers(absent)}{ranks} {words.be(absent)} missing"
    alone = kind.ends == "never"
    if alone:
        remedy = "Pass `--rdzv-endpoint HOST:PORT` on every node, and no `--standalone`."
    meeting = _at(agents[0].launch.endpoint if agents[0].launch is not None else None)
    if launch.takes_free_port(agents[0]):
        meeting = ", but at a free port that no other node can know" if alone else ""
    return Draft(
        confidence=0.5 if complete else 0.9,
        summary=f"{len(agents)} of {nodes or '?'} nodes reached the rendezvous{meeting}; {missing}; no rank has started yet",
        evidence=[
            *(Evidence(None, "stacks", _waits_in(process, frame)) for process, frame in kind.agents[:8]),
            *_own_limit(agents),
            *_only_here(run),
            *_starting(agents),
        ],
        remedy=remedy,
        commands=_commands(run),
    )


def _waits_in(agent: Process, frame: Frame) -> str:
    line = shorten(" ".join(agent.argv), 300, placeholder=" ...")
    return f"{words.launcher(agent)} is waiting in {frame.function}; its command: {line}"


def _own_limit(agents: Iterable[Process]) -> list[Evidence]:
    """When torchrun gives up by itself. It begins to wait somewhat later than it starts."""
    limits = [(limit - each.started_seconds_ago, limit) for each in agents if (limit := launch.seconds_to_join(each))]
    if not limits:
        return []
    left, limit = min(limits)
    when = f"in about {minutes(left)}" if left > 0 else "any moment now"
    return [Evidence(None, "processes", f"torchrun gives up by itself {when} (join_timeout {timeout(limit)})")]


def _other_sizes(arrived: Iterable[Class]) -> Iterator[Evidence]:
    """Calls that expect another number of ranks than the launcher has started."""
    for each in arrived:
        process = each.first.process
        call = meeting_call_of(process) if process is not None else None
        started = observed.environment(process).get("WORLD_SIZE")
        if call is not None and call.world_size is not None and started not in (None, str(call.world_size)):
            text = f"passes world_size={call.world_size} to {call.function}, but WORLD_SIZE is {started}"
            yield Evidence(each.ranks[0], "environment", text + also(each.ranks))


def _starting(waiting: Iterable[Process]) -> list[Evidence]:
    """The processes that may start what is missing."""
    at_work = {each.pid: each for process in waiting for each in process.others_at_work}
    belong = verb(at_work, "belongs", "belong")
    text = f"{describe_holders(at_work.values())} {belong} to the same job, but to no rank of this run"
    return [Evidence(None, "processes", text)] if at_work else []


def _at(endpoint: str | None) -> str:
    return f" at {endpoint}" if endpoint else ""


def _only_here(run: Run) -> list[Evidence]:
    """What is wrong with the address if the missing node is another host."""
    host, _ = run.endpoint
    text = f"{host} is a loopback address: only launchers on this host can reach it"
    return [Evidence(None, "environment", text)] if host is not None and is_loopback(host) else []


def _commands(run: Run) -> tuple[Command, ...]:
    host, port = run.endpoint
    if host is not None and is_loopback(host):
        return ()
    return to_host("nc", "-vz", host, str(port), address=host, note="on the missing node") if port is not None else ()
