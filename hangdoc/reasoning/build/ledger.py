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
        yield from from_recorder.parts_of(
            rank.rank, rank.host, host.wall_us if host is not None else None, rank.process
        )
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
