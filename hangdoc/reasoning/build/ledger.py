"""The ledger of a run: from each rank's record, and from the stack where a rank waits in a call that no record has."""

from collections.abc import Iterable, Iterator

from hangdoc.reasoning.ledger import from_recorder, from_stacks
from hangdoc.reasoning.ledger.from_stacks import StackCall
from hangdoc.reasoning.ledger.put_together import Part, put_together
from hangdoc.reasoning.model.ledger import Ledger, Site
from hangdoc.reasoning.model.rank import Rank
from hangdoc.snapshot import Host


def ledger_of(ranks: Iterable[Rank], hosts: dict[str, Host]) -> Ledger:
    """The calls that some ranks have made in their process groups."""
    return put_together(part for rank in ranks for part in _parts(rank, hosts))


def _parts(rank: Rank, hosts: dict[str, Host]) -> Iterator[Part]:
    if rank.process is not None:
        host = hosts.get(rank.host)
        parts = from_recorder.parts_of(rank.rank, rank.host, host.wall_us if host is not None else None, rank.process)
        undated = host is not None and host.dumps is not None and host.wall_us is None
        yield from map(_without_ages, parts) if undated else parts
    wait = rank.wait
    if wait is None or wait.kind != "collective" or not wait.sure:
        return
    where = rank.where
    site = Site(where.file.rpartition("/")[2], where.line, where.function) if where is not None else None
    yield from from_stacks.parts_of(
        StackCall(
            rank=rank.rank,
            host=rank.host,
            group=wait.operation.group,
            members=wait.members or (),
            op=wait.operation.op,
            site=site,
            backend=wait.operation.backend,
        )
    )


def _without_ages(part: Part) -> Part:
    """A part of which it is not known when it was recorded."""
    pending = tuple(call._replace(age_seconds=None) for call in part.calls.pending)
    return part._replace(calls=part.calls._replace(pending=pending, last_age_seconds=None))
