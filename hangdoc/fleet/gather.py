"""The bundles of many hosts as one snapshot."""

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from hangdoc import codec
from hangdoc.fleet.transport import HostReply, Transport, run
from hangdoc.observe.observe import Options
from hangdoc.snapshot import Host, Snapshot, Unreached, merge
from hangdoc.version import __version__

_HURRY_SECONDS = 3.0
"""How long before the host's time is up its collector must be through, so that the bundle still travels."""


def gather(
    hosts: tuple[str, ...], options: Options, transport: Transport, progress: Callable[[str], None] = lambda text: None
) -> Snapshot:
    """Look at all hosts at once. Never raises for what a host does: it becomes one of the snapshot's `unreached`."""
    ended = 0

    def done(answer: HostReply) -> None:
        nonlocal ended
        ended += 1
        progress(f"{ended} of {len(hosts)} hosts")

    progress(f"looking at {len(hosts)} hosts")
    began = time.monotonic()
    answers = run(hosts, _arguments(options, transport), transport, done)
    return together(answers, time.monotonic() - began)


def _arguments(options: Options, transport: Transport) -> tuple[str, ...]:
    inside = max(1.0, min(options.timeout, transport.host_timeout - _HURRY_SECONDS))
    pids = (word for pid in options.pids for word in ("--pid", str(pid)))
    slurm = ("--slurm-job", options.slurm_job) if options.slurm_job is not None else ()
    return ("snapshot", "--armor", "--window", f"{options.window:g}", "--timeout", f"{inside:g}",
            "--native", options.native, "--locals", options.locals, *slurm, *pids)  # fmt: skip


def together(answers: list[HostReply], elapsed: float) -> Snapshot:
    """One snapshot of all answers; a machine that was reached under two names counts once."""
    found: list[Host] = []
    unreached: list[Unreached] = []
    machines: dict[str, str] = {}
    for answer in answers:
        hosts, why = _hosts(answer)
        if why is not None:
            unreached.append(Unreached(host=answer.host, why=why))
        for host in hosts:
            known = machines.setdefault(host.machine_id or answer.host, answer.host)
            if known == answer.host:
                found.append(host)
            else:
                unreached.append(Unreached(host=answer.host, why=f"it is the same machine as {known}"))
    called = Counter(host.name for host in found)
    named = (msgspec.structs.replace(h, name=h.asked_as or h.name) if called[h.name] > 1 else h for h in found)
    together = merge((Snapshot(hangdoc=__version__, hosts=tuple(named)),))
    return msgspec.structs.replace(together, unreached=tuple(unreached), gathered_seconds=round(elapsed, 3))


def _hosts(answer: HostReply) -> tuple[tuple[Host, ...], str | None]:
    """What a host sent, or why it can't be read."""
    raw, answer.reader.raw = answer.raw, None
    if raw is None:
        return (), answer.why or "no answer"
    try:
        snapshot = codec.decode(raw, "its bundle")
    except codec.BundleError as error:
        return (), str(error).rstrip(".")
    ahead = answer.ahead_seconds
    return tuple(
        msgspec.structs.replace(host, asked_as=answer.host, clock_ahead_seconds=ahead) for host in snapshot.hosts[:1]
    ), None
