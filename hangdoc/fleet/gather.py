"""Gathers the bundles of many hosts into one snapshot."""

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from hangdoc import codec
from hangdoc.fleet.transport import HostReply, Transport, run
from hangdoc.observe.observe import Options
from hangdoc.snapshot import Host, Snapshot, Unreached, merge
from hangdoc.version import __version__

MOST_WHOLE = 256
"""If there are more hosts, each sends a summary, with which a diagnosis of 100,000 ranks takes half the time and memory."""
_TRAVEL_SECONDS = 3.0
"""The collector must end this long before the host's time limit, so that the bundle arrives in time."""


def gather(
    hosts: tuple[str, ...],
    options: Options,
    transport: Transport,
    progress: Callable[[str], None] = lambda text: None,
    *,
    summary: bool | None = None,
) -> Snapshot:
    """Observe all hosts in parallel. Never raises: a host that fails is in `unreached` of the snapshot. `summary`: whether each
    host sends only a summary (`hangdoc.reasoning.summary`); None: if they are many."""
    ended = 0

    def done(reply: HostReply) -> None:
        nonlocal ended
        ended += 1
        progress(f"{ended} of {len(hosts)} hosts")

    progress(f"observing {len(hosts)} hosts")
    began = time.monotonic()
    short = len(hosts) > MOST_WHOLE if summary is None else summary
    replies = run(hosts, _arguments(options, transport, summary=short), transport, done)
    return combine(replies, time.monotonic() - began)


def _arguments(options: Options, transport: Transport, *, summary: bool) -> tuple[str, ...]:
    timeout = max(1.0, min(options.timeout, transport.host_timeout - _TRAVEL_SECONDS))
    pids = (word for pid in options.pids for word in ("--pid", str(pid)))
    slurm = ("--slurm-job", options.slurm_job) if options.slurm_job is not None else ()
    short = ("--summary",) if summary else ()
    return ("snapshot", "--as-text", *short, "--window", f"{options.window:g}", "--timeout", f"{timeout:g}",
            "--native", options.native, "--locals", options.locals, *slurm, *pids)  # fmt: skip


def combine(replies: list[HostReply], elapsed: float) -> Snapshot:
    """One snapshot of all replies. A machine that was reached under two names counts once."""
    found: list[Host] = []
    unreached: list[Unreached] = []
    machines: dict[str, str] = {}
    for reply in replies:
        hosts, why = _hosts(reply)
        if why is not None:
            unreached.append(Unreached(host=reply.host, why=why))
        for host in hosts:
            known = machines.setdefault(host.machine_id or reply.host, reply.host)
            if known == reply.host:
                found.append(host)
            else:
                unreached.append(Unreached(host=reply.host, why=f"it is the same machine as {known}"))
    names = Counter(host.name for host in found)
    renamed = (msgspec.structs.replace(h, name=h.asked_as or h.name) if names[h.name] > 1 else h for h in found)
    merged = merge((Snapshot(hangdoc=__version__, hosts=tuple(renamed)),))
    return msgspec.structs.replace(merged, unreached=tuple(unreached), gathered_seconds=round(elapsed, 3))


def _hosts(reply: HostReply) -> tuple[tuple[Host, ...], str | None]:
    """The hosts in a reply (at most one), or why there is none."""
    raw, reply.reader.raw = reply.raw, None
    if raw is None:
        return (), reply.why or "no reply"
    try:
        snapshot = codec.decode(raw, "its bundle")
    except codec.BundleError as error:
        return (), str(error).rstrip(".")
    ahead = reply.ahead_seconds
    return tuple(
        msgspec.structs.replace(host, asked_as=reply.host, clock_ahead_seconds=ahead) for host in snapshot.hosts[:1]
    ), None
