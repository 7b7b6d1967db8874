"""Ids of findings. The same hang has the same id in every look, live or replayed; another run or another blockage has another.

An id is a digest of two things: which run it is, and what holds it up. The run is named by its launcher's own name for it and
by the process of its lowest living rank, because a run that is started again often has the old name and the old port. The
blockage is its kind and the ranks where it lies. Nothing in it changes while a hang lasts: no clock, no line, no counter, no
confidence, and no cause, which a later look may find out.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from hangdoc import run_identity
from hangdoc.diagnosis import Finding
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.rank import numbers_of
from hangdoc.reasoning.model.run import Placed, Run

_DIGITS = 16


Instance = tuple[str, ...]


def name_blockage(run: Instance, blockage: Blockage) -> str:
    """The id of the finding about a blockage."""
    where = blockage.culprits or tuple(sorted(numbers_of(blockage.awaited)))
    return _digest(run, blockage.kind.NAME, where)


def name_fact(run: Instance, finding: Finding) -> str:
    """The id of a finding about the run as a whole."""
    return _digest(run, finding.code, finding.culprits)


def number_repeated(ids: Iterable[str]) -> Iterator[str]:
    """The ids of one run, with a number after those that repeat."""
    seen: Counter[str] = Counter()
    for name in ids:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def identify_run(run: Run) -> Instance:
    """What tells this run from all others, an earlier one of the same name included."""
    if not run.processes:
        return min(map(_process, run.launchers), default=(run.id,))
    lowest = min(run.processes)
    process = run.processes[lowest]
    name = run_identity.digest_of(process.identity) if process.identity is not None else None
    return (name or "", *_process((run.host[run.ranks[lowest].host], process)))


def _process(place: Placed) -> Instance:
    host, process = place
    return host.machine_id or host.name, str(process.pid)  # a machine may be reached under several names


def _digest(run: Instance, what: str, ranks: tuple[int, ...]) -> str:
    text = "\0".join((*run, what, ",".join(map(str, ranks))))
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()
