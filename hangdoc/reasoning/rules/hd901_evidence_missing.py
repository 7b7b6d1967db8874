"""Evidence is missing: this finding lists what hangdoc could not observe.

## What it finds

Ranks of the run that were not observed, ranks whose stacks or sockets could not
be read, and runs in which all ranks wait but the evidence does not show why.

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

If permissions are missing, `hangdoc doctor` shows which ones and how to get
them.

## How hangdoc knows

It lists each rank without a process on the observed hosts, and each error
message of a failed read.

## When it can be wrong

It only lists facts. If another finding already explains the hang, the missing
evidence does not matter.

## References

- docs/attaching.md: containers, other users, what each permission lets hangdoc
  see
"""

from collections.abc import Iterable, Iterator

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.kinds import SameCall, Standstill
from hangdoc.reasoning.model import Run, numbers_of
from hangdoc.reasoning.ranks.holds import Unreadable, Unseen
from hangdoc.snapshot import Unavailable

CODE = "HD901"
NAME = "evidence-missing"
ABOUT = (Unseen, Unreadable, SameCall, Standstill)

_DOCTOR = ("Run `hangdoc doctor` on that host: it shows what is missing and how to fix it.", ("hangdoc doctor",))


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that wait for ranks that were not observed, or that make no progress for no visible reason."""
    if isinstance(blockage.kind, Unseen):
        return _not_looked_at(run, blockage)
    if isinstance(blockage.kind, Unreadable):
        return _not_read(run, blockage)
    everyone = list(numbers_of(blockage.at))
    if isinstance(blockage.kind, SameCall):
        summary = (
            f"{words.ranks(everyone)} {words.verb(everyone, 'is', 'are all')} waiting in "
            f"{words.operation(blockage.at[0].first)}, but the evidence does not show why"
        )
        remedy = (
            "Check the links between the hosts (queues, retransmits), and the sizes and the order of the last collectives "
            "on each rank."
        )
    else:
        summary = (
            f"{words.ranks(everyone)} {words.be(everyone)} not making progress and {words.be(everyone)} in no collective; the "
            "evidence does not show why"
        )
        remedy = "Check what each rank is waiting for: its other threads, its child processes, a lock, or a service."
    return words.finding(
        CODE,
        NAME,
        severity=blockage.severity,
        confidence=0.3,
        victims=everyone,
        summary=summary,
        evidence=[*words.class_evidence(blockage.at), *words.standstill(run)],
        remedy=remedy,
        commands=words.look_again(blockage.at[0].first),
    )


def _not_looked_at(run: Run, blockage: Blockage) -> Finding:
    unseen = blockage.culprits
    waiting = blockage.waiting or run.still
    who = sorted(numbers_of(waiting))
    return _finding(
        f"{words.waiting_in(waiting, words.ranks(unseen))}; {words.ranks(unseen)} "
        f"{words.verb(unseen, 'was', 'were')} not observed",
        [
            *(Evidence(rank=n, probe="processes", text=run.unseen[n].why) for n in unseen[:8]),
            *words.class_evidence(waiting),
            *words.standstill(run),
        ],
        "Take a snapshot on every host and diagnose the bundles together.",
        ("hangdoc snapshot -o $(hostname).hangdoc   # on every host", "hangdoc diagnose *.hangdoc"),
        victims=who,
    )


def _not_read(run: Run, blockage: Blockage) -> Finding:
    waiting = blockage.waiting or run.still
    who = sorted(numbers_of(waiting))
    return _finding(
        f"{words.waiting_in(waiting, words.ranks(blockage.culprits))}; the state of {words.ranks(blockage.culprits)} could not "
        "be read",
        [*words.class_evidence(blockage.at), *words.class_evidence(waiting), *words.standstill(run)],
        *_DOCTOR,
        victims=who,
    )


def check(run: Run) -> Iterator[Finding]:
    """Stacks and sockets that could not be read."""
    refused = [
        (rank, rank.process.stack.reason)
        for rank in run.ranks.values()
        if rank.process is not None and rank.label != "dead" and isinstance(rank.process.stack, Unavailable)
    ]
    if refused:
        blind = len(refused) == len([r for r in run.ranks.values() if r.label != "dead"])
        yield _finding(
            f"the stacks of {words.ranks(r.rank for r, _ in refused)} could not be read: {refused[0][1]}"
            + ("; what they are waiting for is unknown" if blind else ""),
            [Evidence(rank=rank.rank, probe="stacks", text=f"pid {rank.pid}: {why}") for rank, why in refused[:8]],
            *_DOCTOR,
        )
    still = list(numbers_of(run.still))
    if still and run.age_seconds is None and (hosts := run.blind_hosts()):
        yield _finding(
            f"{words.waiting_in(run.still)}; for how long could not be read: {hosts[0][1]}",
            [Evidence(rank=None, probe="sockets", text=f"{name}: {why}") for name, why in hosts[:8]],
            *_DOCTOR,
        )


def _finding(
    summary: str, evidence: list[Evidence], remedy: str, commands: tuple[str, ...], *, victims: Iterable[int] = ()
) -> Finding:
    return words.finding(
        CODE,
        NAME,
        confidence=0.5,
        victims=victims,
        summary=summary,
        evidence=evidence,
        remedy=remedy,
        commands=commands,
    )
