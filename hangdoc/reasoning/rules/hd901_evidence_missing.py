"""Evidence is missing: this finding lists what hangdoc could not observe.

## What it finds

Some ranks of the run were not observed, or their stacks or sockets could not be
read. Or all ranks wait, and the evidence does not show why.

## Why it hangs

The cause may be where hangdoc could not look. This finding names no culprit.

## Example

```console
$ hangdoc diagnose   # <- on one node of two
```

## Use instead

```console
$ hangdoc diagnose --hosts node0,node1         # over ssh
$ hangdoc snapshot -o $(hostname).hangdoc      # or by hand: on every node
$ hangdoc diagnose *.hangdoc                   # then together
```

Of torch's dumps (`--dumps`), those of some ranks may be on another node, or were
never written. If permissions are missing, `hangdoc doctor` shows which ones and how to get
them.

## How hangdoc knows

It lists each rank without a process on the observed hosts, and each error
message of a failed read. Of a rank whose stack could not be read, it shows which ranks
wait for it by torch's record, for how long it has not run, and where in the kernel it
is. An observer makes all threads of a process run: where none has rested for longer, the
rank may have waited for longer. The first command shows its stack. Of ranks that have all come to a rendezvous, it
shows whether they are connected to each other.

## When it can be wrong

It only lists facts. If another finding already explains the hang, the missing
evidence does not matter.

## References

- docs/attaching.md: containers, other users, what each permission lets hangdoc
  see
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hangdoc.reasoning.model.holds import Hold, Unreadable, Unseen
from hangdoc.reasoning.model.kinds import SameCall, Standstill
from hangdoc.reasoning.model.rank import Class, Rank, numbers_of
from hangdoc.reasoning.ranks.movement import own_counts
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import call_words, words
from hangdoc.reasoning.text.next_steps import Command, command, constant, operand, settle
from hangdoc.reasoning.waiting.waits import meets_others
from hangdoc.snapshot import OF_ANOTHER_USER, Unavailable

_SNAPSHOT = (
    constant("hangdoc snapshot -o $(hostname).hangdoc", note="on every host"),
    constant("hangdoc diagnose *.hangdoc"),
)
_OUTSIDE = ", which needs processes outside of this run"
_OF_OTHERS = "whether those processes, such as rollouts or trainers, have made the same call"
_OF_CALLS = "the sizes and the order of the last collectives on each rank"
_OF_CONNECTIONS = (
    "whether these ranks can connect to each other: their addresses, their interfaces, and what is between them. If they can, "
    "end the run and start it again"
)
_OF_COUNTER = "whether {} runs, the process that counts the ranks in this call"
_BETWEEN_HOSTS = "the links between the hosts (queues, retransmits), and "
_SHOWN = 8
_SETTLE = "The stack of {} would show it. If the command is refused too, `hangdoc doctor` shows what is missing."
_AS_OWNER = "Run hangdoc as the user of these ranks, or as root."
_DOCTOR = "Run `hangdoc doctor` on that host: it shows what is missing and how to fix it."


@about(SameCall, Standstill)
def _unexplained(run: Run, blockage: Blockage, kind: Hold) -> Draft:
    who, first = set(numbers_of(blockage.awaited)), blockage.awaited[0].first
    if isinstance(kind, SameCall):
        call, outside = words.operation(first), meets_others(run, first)
        state = f"{words.do(who, 'is', 'are all')} waiting in {call}{_OUTSIDE if outside else ''}, but"
        if outside:
            check = _OF_OTHERS
        elif first.in_rendezvous:
            check = _OF_CONNECTIONS
        elif first.wait is not None and first.wait.counter is not None:
            check = _OF_COUNTER.format(first.wait.counter)
        else:
            check = f"{_BETWEEN_HOSTS if len(run.hosts) > 1 else ''}{_OF_CALLS}"
    else:
        state = f"{words.are(who)} not making progress and {words.be(who)} in no collective;"
        check = "what each rank is waiting for: its other threads, its child processes, a lock, or a service"
    restarts = words.restarts(blockage.awaited)
    return Draft(
        confidence=0.3,
        victims=numbers_of(blockage.awaited),
        summary=f"{state} the evidence does not show why",
        evidence=[*restarts, *_not_connected(run, blockage.awaited), *words.stacks(run, blockage.awaited)],
        remedy=f"{'Read the first error in the log of torchrun. ' if restarts else ''}Check {check}.",
    )


def _not_connected(run: Run, classes: Sequence[Class]) -> list[Evidence]:
    """That ranks which have all come to a rendezvous are connected to no other rank, as far as all connections were read."""
    met = [alike.first for alike in classes if alike.first.in_rendezvous]
    if not met or run.blind_hosts() or any(rank.connections for rank in met):
        return []
    ranks = sorted(numbers_of(classes))
    return [Evidence(min(ranks), "sockets", f"no connection to another rank is open{words.also(ranks)}")]


@about(Unseen, Unreadable)
def _unknown(run: Run, blockage: Blockage, kind: Hold) -> Draft:
    who, waiting = blockage.culprits, blockage.waiting or run.still
    if run.after_the_fact:
        return _without_dumps(run, blockage, waiting)
    if isinstance(kind, Unseen):
        what, evidence = f"{words.do(who, 'was', 'were')} not observed", words.unseen(run, who)
        remedy, commands = _see_all(run)
    else:
        firsts = [alike.first for alike in blockage.awaited]
        what = f"what {words.do(who, 'does', 'do')} could not be read"
        evidence = _group_alike((rank.rank, "clocks", _describe_clocks(rank)) for rank in firsts)
        remedy, commands = _SETTLE.format(words.ranks(who)), settle(firsts[0].process)
    return Draft(
        confidence=0.5,
        culprits=(),
        victims=numbers_of(waiting),
        summary=f"{words.waiting_in(waiting, words.ranks(who))}; {what}",
        evidence=[*evidence, *words.stacks(run, waiting)],
        remedy=remedy,
        commands=commands,
    )


def _describe_clocks(rank: Rank) -> str:
    """What is known of a rank without a stack."""
    return "; ".join(filter(None, (words.cpu(rank, rank.why), rank.why)))


def _group_alike(lines: Iterable[tuple[int, str, str]]) -> list[Evidence]:
    """One line for all ranks with the same text. `lines`: (rank, probe, text)."""
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, probe, text in lines:
        alike.setdefault((probe, text), []).append(rank)
    return [
        Evidence(ranks[0], probe, text + words.also(ranks)) for (probe, text), ranks in islice(alike.items(), _SHOWN)
    ]


def _without_dumps(run: Run, blockage: Blockage, waiting: tuple[Class, ...]) -> Draft:
    """Ranks of which torch left no dump, or none that can be read."""
    who = blockage.culprits
    folder = next(host.dumps for host in run.hosts if host.dumps is not None)
    unread = [Evidence(rank, "recorder", run.ranks[rank].why) for rank in who[:_SHOWN] if rank in run.ranks]
    return Draft(
        confidence=0.5,
        culprits=(),
        victims=numbers_of(waiting),
        summary=f"{words.waiting_in(waiting, words.ranks(who))}, and there is no usable dump of {words.them(who)}",
        evidence=[*(unread or words.unseen(run, who)), *words.stacks(run, waiting)],
        remedy=f"Look at the log of {words.ranks(who)}: a rank without a dump had often ended, or left its group, before the "
        "timeout. If its dump is on another node, copy it.",
        commands=(command("hangdoc", "diagnose", "--dumps", operand(folder)),),
    )


def _see_all(run: Run) -> tuple[str, tuple[Command, ...]]:
    """(remedy, commands) to observe the other ranks of a run."""
    if any(host.restricted for host in run.hosts):
        return (
            "Run hangdoc without --pid: the ranks may be on the same host. If they are on other hosts, add --hosts.",
            (command("hangdoc", "diagnose"),),
        )
    return (
        "Observe all hosts together with --hosts. Or take a snapshot on every host and diagnose the bundles together.",
        _SNAPSHOT,
    )


def check(run: Run) -> Iterator[Draft]:
    """Stacks and sockets that could not be read."""
    if run.after_the_fact:  # nothing but the dumps was to be read
        return
    refused = [
        (rank, process.pid, process.stack.reason)
        for rank, process in run.processes.items()
        if isinstance(process.stack, Unavailable)
        and own_counts(process) is None  # a rank that makes progress is not paused
        and (run.ranks[rank].label != "computing" or isinstance(run.ranks[rank].hold, Unreadable))
    ]
    if refused:
        of_others = all(run.processes[rank].environment == OF_ANOTHER_USER for rank, _, _ in refused)
        told = {rank for rank, _, _ in refused if isinstance(run.ranks[rank].hold, Unreadable)}
        yield _unread(
            f"the stacks of {words.ranks(rank for rank, _, _ in refused)} could not be read: {refused[0][2]}"
            + ("; what they are doing is unknown" if len(refused) == len(run.living) else ""),
            [
                *call_words.launched(run, run.ranks),
                *_group_alike(
                    (rank, "clocks", _describe_clocks(run.ranks[rank])) if rank in told else (rank, "stacks", why)
                    for rank, _, why in refused
                ),
            ],
            settle(run.processes[refused[0][0]]),
            of_others=of_others,
        )
    if run.still and run.age_seconds is None and (hosts := run.blind_hosts()):
        yield _unread(
            f"{words.waiting_in(run.still)}; for how long could not be read: {hosts[0][1]}",
            [Evidence(None, "sockets", f"{name}: {why}") for name, why in hosts[:8]],
        )


def _unread(
    summary: str, evidence: list[Evidence], commands: tuple[Command, ...] = (), *, of_others: bool = False
) -> Draft:
    """`of_others`: only the rights of another user are missing, of which doctor has nothing to tell."""
    return Draft(
        confidence=0.5,
        summary=summary,
        evidence=evidence,
        remedy=_AS_OWNER if of_others else _DOCTOR,
        commands=commands if of_others else (*commands, command("hangdoc", "doctor")),
    )
