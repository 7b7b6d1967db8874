"""Ids of jobs.

A job is called by what its launcher and its variables say: `none@10.0.0.1:29500`. Anybody can give a process these variables, and
anybody can listen at a loopback address of another host. So each job also has a full id, which ends with what nobody can claim:
the owner of its processes, and the host of a loopback address. The full id is shown where two owners claim one name, and is
accepted everywhere. Nobody's name is another's full id.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hangdoc.reasoning.runs.gathered import Gathered
from hangdoc.regex import regex

_LIKE_AN_ENDING = regex(r"#(?:\d+$|uid)")


class JobId(NamedTuple):
    """How a job is called."""

    shown: str
    """Unique in its look."""
    full: str
    """Unique, and independent of what other users claim."""
    name: str | None
    """What its launcher and variables say; None if this looks like the full id of a job."""


def ids_of(parts: Sequence[Gathered]) -> list[JobId]:
    """The ids of all jobs, which are in the order of their names. Of those with one name and one owner, the run itself comes
    before what is left of earlier ones."""
    owners: dict[str, set[str]] = {}
    for part in parts:
        owners.setdefault(name_of(part), set()).add(_owner(part))
    counts: dict[tuple[str, str], int] = {}
    taken: set[str] = set()
    found = []
    for part in parts:
        name, owner = name_of(part), _owner(part)
        number = counts[name, owner] = counts.get((name, owner), 0) + 1
        ending = f"#{number}" if number > 1 else ""
        alone = len(owners[name]) == 1 and _LIKE_AN_ENDING.search(name) is None
        full = _not_in(f"{name}{owner}{ending}", taken)
        shown = _not_in(f"{name}{ending}", taken) if alone else full
        taken |= {full, shown}
        found.append(JobId(shown, full, name if alone or _LIKE_AN_ENDING.search(name) is None else None))
    return found


def name_of(part: Gathered) -> str:
    """What its launcher and variables say: `slurm:7.0`, `none@10.0.0.1:29500`."""
    if part.run_id is not None and part.run_id.startswith(("mpi:", "slurm:", "dumps:")):
        return part.run_id
    return f"{part.run_id or 'run'}@{part.master}" if part.master is not None else part.name


def _owner(part: Gathered) -> str:
    """`#uid1000`, and with a loopback address `#uid1000@node1`."""
    uid = next((process.uid for _, process in part.processes if process.uid is not None), "?")
    return f"#uid{uid}" + (f"@{part.alone_on}" if part.alone_on is not None else "")


def _not_in(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken: a host may call itself as it likes."""
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}#{number}"
    return free
