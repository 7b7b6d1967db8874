"""Gathers the bundles of many hosts into one snapshot."""

import contextlib
import datetime
import secrets
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from hangdoc import codec
from hangdoc.fleet.courier import Courier
from hangdoc.fleet.transport import HostReply, Transport, run
from hangdoc.observe.look.observe import Options
from hangdoc.snapshot import Host, Snapshot, Unreached, merge
from hangdoc.version import __version__

MOST_WHOLE = 256
"""If there are more hosts, each sends a summary, with which a diagnosis of 100,000 ranks takes half the time and memory."""
_MAX_BYTES = 128 << 20
"""Limit for the JSON of one host. 1,000 ranks take about a twelfth of it."""
_NONCE_BYTES = 16
_SAME_SECONDS = 5.0
"""By how much the start of a process may differ between two looks. Their clocks are read at different moments."""
_TRAVEL_SECONDS = 3.0
"""The collector must end this long before the host's time limit, so that the bundle arrives in time."""


def gather(
    hosts: tuple[str, ...],
    options: Options,
    transport: Transport,
    progress: Callable[[str], None] = lambda text: None,
    *,
    summary: bool | None = None,
    courier: Courier | None = None,
) -> Snapshot:
    """Observe all hosts in parallel. Never raises: a host that fails is in `unreached` of the snapshot. `summary`: whether each
    host sends only a summary (`hangdoc.reasoning.summary`); None: if they are many. `courier` brings hangdoc to hosts that lack
    it, and keeps it there for further looks; without one, hangdoc is removed again at the end."""
    progress(f"observing {len(hosts)} hosts")
    began = time.monotonic()
    short = len(hosts) > MOST_WHOLE if summary is None else summary
    nonce = secrets.token_hex(_NONCE_BYTES)
    arguments = _make_arguments(options, transport, nonce, summary=short)
    with contextlib.ExitStack() as stack:
        if courier is None and transport.brings() is not None:
            courier = Courier(transport)
            stack.callback(courier.close)
        replies = _ask(hosts, arguments, transport, progress, courier)
    combined = combine(replies, time.monotonic() - began, nonce)
    return combined if courier is None else msgspec.structs.replace(combined, brought=courier.brought())


def _ask(
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    progress: Callable[[str], None],
    courier: Courier | None,
) -> list[HostReply]:
    """One reply per host. Each host is asked through the hangdoc that is installed there, and through one that is brought if
    that is missing or of another version."""
    until = time.monotonic() + transport.timeout
    ended: set[str] = set()
    asked: set[str] = set()

    def end(reply: HostReply) -> None:
        ended.add(reply.host)
        progress(f"{len(ended)} of {len(hosts)} hosts")

    def bring(host: str) -> None:
        if courier is not None and host not in asked:
            asked.add(host)
            courier.begin(host, arguments, end)

    def done(reply: HostReply) -> None:
        if reply.lacking and courier is not None:
            bring(reply.host)
        else:
            end(reply)

    for host in hosts:
        if courier is not None and courier.has(host):
            bring(host)
    rest = tuple(host for host in hosts if host not in asked)
    replies = {reply.host: reply for reply in run(rest, arguments, transport, done)} if rest else {}
    if courier is not None:
        for reply in courier.finish(until):
            replies[reply.host] = reply.instead_of(replies.get(reply.host))
    return [replies.get(host) or HostReply(host, why="the connection with it ended") for host in hosts]


def _make_arguments(options: Options, transport: Transport, nonce: str, *, summary: bool) -> tuple[str, ...]:
    timeout = max(1.0, min(options.timeout, transport.host_timeout - _TRAVEL_SECONDS))
    pids = (word for pid in options.pids for word in ("--pid", str(pid)))
    slurm = ("--slurm-job", options.slurm_job) if options.slurm_job is not None else ()
    short = ("--summary",) if summary else ()
    ras = ("--ras", options.ras) if options.ras != "auto" else ()
    stacks = ("--stacks",) if options.stacks else ()
    window = () if options.shorten else ("--window", f"{options.window:g}")
    return ("snapshot", "--as-text", "--nonce", nonce, *short, *window, "--timeout", f"{timeout:g}",
            "--native", options.native, *stacks, "--locals", options.locals, *ras, *slurm, *pids)  # fmt: skip


def combine(replies: list[HostReply], elapsed: float, nonce: str = "") -> Snapshot:
    """One snapshot of all replies to the request with this nonce. A machine that was reached under two names counts once. If two
    replies claim to be one machine but contradict each other, both are kept, and both say so."""
    hosts: dict[str, Host] = {}
    unreached: list[Unreached] = []
    claims: dict[str, list[str]] = {}
    for reply in replies:
        host, why = _read_host(reply, nonce)
        if host is None:
            unreached.append(Unreached(host=reply.host, why=why))
            continue
        claimed = claims.setdefault(host.machine_id, []) if host.machine_id is not None else []
        same = next((name for name in claimed if _agree(hosts[name], host)), None)
        if same is not None:
            unreached.append(Unreached(host=reply.host, why=f"it is the same machine as {same}"))
            continue
        claimed.append(reply.host)
        hosts[reply.host] = host
    for claimed in claims.values():
        if len(claimed) > 1:
            hosts |= {name: _mark_contradicted(hosts[name], claimed) for name in claimed}
    names = Counter(host.name for host in hosts.values())
    # A host may call itself as it likes: nobody's name changes another's, or is one by which another was reached.
    unclear = {h.name for name, h in hosts.items() if names[h.name] > 1 or (h.name != name and h.name in hosts)}
    renamed = (
        msgspec.structs.replace(h, name=h.asked_as or h.name) if h.name in unclear else h for h in hosts.values()
    )
    merged = merge((Snapshot(hangdoc=__version__, hosts=tuple(renamed)),))
    return msgspec.structs.replace(merged, unreached=tuple(unreached), gathered_seconds=round(elapsed, 3))


def _mark_contradicted(host: Host, names: list[str]) -> Host:
    """A host that claims the machine id of others. The id no longer identifies it, so that nothing merges them."""
    shown = ", ".join(names[:8])
    text = f"{shown} claim to be one machine but sent different processes: log in and find out which of them is right"
    return msgspec.structs.replace(
        host, problems=(*host.problems, text), machine_id=f"{host.machine_id} claimed by {host.asked_as}"
    )


def _agree(host: Host, other: Host) -> bool:
    """Whether two looks can be at one machine at about the same time: they have mostly the same ranks, with the same start. Who
    only copies the id of a machine does not know these."""
    ranks, others = _read_starts(host), _read_starts(other)
    shared = [pid for pid in ranks.keys() & others.keys() if abs(ranks[pid] - others[pid]) < _SAME_SECONDS]
    return 2 * len(shared) >= max(len(ranks), len(others))  # a rank may have ended in between


def _read_starts(host: Host) -> dict[int, float]:
    """When each rank started, in seconds since 1970, by pid."""
    try:
        taken = datetime.datetime.fromisoformat(host.taken_at).timestamp()
    except (ValueError, OverflowError):
        taken = 0.0
    return {process.pid: taken - process.started_seconds_ago for process in host.processes if process.role == "rank"}


def _read_host(reply: HostReply, nonce: str) -> tuple[Host | None, str]:
    """The host in a reply, or None and why there is none."""
    raw, reply.reader.raw = reply.raw, None
    if raw is None:
        return None, reply.why or "no reply"
    try:
        snapshot = codec.decode(raw, "its bundle", nonces=(nonce,), limit=_MAX_BYTES)
    except codec.BundleError as error:
        return None, str(error).rstrip(".")
    if len(snapshot.hosts) != 1:
        return None, f"its bundle contains {len(snapshot.hosts)} hosts"
    host = snapshot.hosts[0]
    problems = (*host.problems, reply.note) if reply.note is not None else host.problems
    return (
        msgspec.structs.replace(host, asked_as=reply.host, clock_ahead_seconds=reply.ahead_seconds, problems=problems),
        "",
    )
