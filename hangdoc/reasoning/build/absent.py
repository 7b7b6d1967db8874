"""Ranks of a run without a process: dead, or only not observed."""

from collections import Counter
from collections.abc import Mapping

from msgspec import structs

from hangdoc.reasoning.evidence.kernel import how_it_ended
from hangdoc.reasoning.evidence.stack import has_met
from hangdoc.reasoning.model.holds import Dead
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Placed, Unlooked
from hangdoc.reasoning.runs.links import lead_elsewhere
from hangdoc.reasoning.runs.processes import Gathered
from hangdoc.snapshot import Process, RankIdentity, Unreached


def add_missing_ranks(
    run: Gathered, world: int, ranks: dict[int, Rank], unreached: tuple[Unreached, ...]
) -> dict[int, Unlooked]:
    """Add the dead ones of the missing ranks of a run to `ranks`; why each other one was not observed. Those that must be on an
    observed host are dead (the zombies first), or perhaps not started if others only wait for their keys in a store. Some
    processes of one of the launchers may be unreadable; any of them may be such a rank. `unreached`: the hosts that sent no
    evidence; a missing rank may be there."""
    unseen: dict[int, Unlooked] = {}
    missing = [rank for rank in range(world) if rank not in ranks]
    if not missing:
        return unseen
    folder = next((host.dumps for host, _ in run.members if host.dumps is not None), None)
    if folder is not None:  # no process was looked for
        return {number: Unlooked(f"no dump of rank {number} in {folder}", elsewhere=True) for number in missing}
    members = run.by_rank
    unreadable = Counter[str]()
    for host, process in run.launchers:  # of a host too, there may be several
        unreadable += Counter({host.name: process.unreadable_below})
    restricted = any(host.restricted for host, _ in run.members)
    arrived = any(has_met(process) for _, process in run.members)
    # Ranks that have completed the rendezvous are connected. If they are connected only to each other, no other rank is alive.
    beside = restricted and not (arrived and lead_elsewhere(members, run.stores) is False)
    in_store = any(rank.wait is not None and rank.wait.kind == "store" for rank in ranks.values())
    whole = {(host.name, process.pid) for host, process in run.launchers if process.whole_tree}
    homes, otherwise = _homes(members, whole, missing, beside=beside)
    if otherwise is None and members and not beside:
        otherwise = run.alone_on
    ended = iter(run.zombies)
    for number in missing:
        home = homes.get(number, otherwise)
        if (place := next(ended, None)) is not None:
            host, process = place
            state = "zombie" if process.state == "Z" else "exited"
            ranks[number] = _dead(number, host.name, how_it_ended(process), state=state, process=process)
        elif number in run.copies:
            host, process = run.copies[number]
            why = f"its process is gone; pid {process.pid}, which it had forked, is still alive"
            ranks[number] = _dead(number, host.name, why)
        elif home is not None and home not in unreadable and arrived:
            ranks[number] = _dead(number, home, "its process is gone")
        elif home is not None and home not in unreadable and in_store:
            hold = Dead(traced=False, ends="unknown")
            ranks[number] = _dead(number, home, f"there is no process on {home}, where it should run", hold=hold)
        else:
            unseen[number] = _unlooked(home, unreadable, unreached, restricted=restricted)
    return unseen


def leave_out_bystanders(run: Gathered, ranks: dict[int, Rank]) -> None:
    """If a rank has died, the others wait for it, and no longer for processes that may have nothing to do with their waits. A
    launcher that looks after its ranks ends the others when one fails, so a rank that is missing there ended without an error."""
    monitored = any(process.launch is not None for _, process in run.launchers)
    if monitored or not any(map(_has_failed, ranks.values())):
        return
    for number, rank in ranks.items():
        if rank.hold is not None and rank.hold.bystanders:
            why = rank.why.replace(f"; {rank.hold.bystanders}", "")
            hold = structs.replace(rank.hold, ends="unknown", bystanders="")
            ranks[number] = structs.replace(rank, hold=hold, why=why)


def _has_failed(rank: Rank) -> bool:
    """Whether a rank was started, has ended, and did not end without an error."""
    started = rank.hold is None or rank.hold.ends == "never"
    return rank.label == "dead" and started and (rank.process is None or rank.process.exit_code != 0)


def _dead(
    number: int,
    host: str,
    why: str,
    *,
    state: str = "missing",
    process: Process | None = None,
    hold: Dead | None = None,
) -> Rank:
    return Rank("dead", state, why, rank=number, host=host, process=process, hold=hold)


def _unlooked(
    host: str | None, unreadable: Mapping[str, int], unreached: tuple[Unreached, ...], *, restricted: bool
) -> Unlooked:
    """Why a rank was not observed. `unreadable`: how many processes may not be read, by host."""
    if unreadable and (host is None or host in unreadable):
        hidden = host or next(iter(unreadable))
        return Unlooked(
            f"another user's processes of the run on {hidden} cannot be read ({unreadable[hidden]} below its launchers): run "
            "hangdoc as that user or as root",
            unreadable=True,
        )
    if host is not None:
        return Unlooked(f"no process was found on {host}: not started yet, or already gone")
    looked = "among the observed processes (--pid)" if restricted else "on the observed hosts"
    return Unlooked(f"no process {looked}{_not_reached(unreached)}", elsewhere=True)


def _not_reached(unreached: tuple[Unreached, ...]) -> str:
    if not unreached:
        return ""
    first, *others = unreached
    more = f" and {len(others)} more hosts" if len(others) > 1 else " and 1 more host" if others else ""
    return f"; could not reach {first.host} ({first.why}){more}"


def _homes(
    members: dict[int, Placed], whole: set[tuple[str, int]], missing: list[int], *, beside: bool
) -> tuple[dict[int, str], str | None]:
    """The observed hosts on which ranks without a process must be, and the one on which all others must be; None if they may be
    elsewhere. `whole`: the launchers (host, pid) whose descendants were all observed. `beside`: a rank may be alive on a host of
    which only some processes were observed."""
    homes: dict[int, str] = {}
    seen: set[tuple[str, int, int]] = set()
    for rank, (host, process) in members.items():
        identity: RankIdentity | None = process.identity
        if identity is None or (beside and host.restricted and (host.name, process.owner) not in whole):
            continue
        if identity.local_rank is not None and identity.local_world_size is not None:
            first, size = rank - identity.local_rank, identity.local_world_size
            if (host.name, first, size) not in seen:
                seen.add((host.name, first, size))
                for number in missing if size > len(missing) else range(first, first + size):
                    if first <= number < first + size:
                        homes.setdefault(number, host.name)
        if identity.source == "mp.spawn":
            return homes, host.name
    return homes, None
