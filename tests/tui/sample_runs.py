"""What the app's tests look at: recorded runs, and built ones for what nobody can record here."""

import datetime
from pathlib import Path

import msgspec

from hangdoc import codec
from hangdoc.diagnosis import RankView
from hangdoc.reasoning.engine import examine
from hangdoc.snapshot import (
    CardEvent,
    CardEvents,
    Cards,
    Connection,
    Connections,
    Counter,
    Process,
    Progress,
    Snapshot,
    Unavailable,
)
from hangdoc_tui.app import Top
from hangdoc_tui.source import Poll, Recorded
from tests.rules.shapes import card, gpu_rank
from tests.unit.builders import backward, c10d, frame, local, rank, snapshot, train
from tests.unit.test_past import stands

CORPUS = Path(__file__).parents[1] / "corpus"
RECORDED = {
    "hung": "trainer_shard_mismatch",
    "waiting": "checkpoint",
    "healthy": "trainer_healthy",
    "dead-rank": "trainer_rank_dies",
}


def thousand() -> Snapshot:
    """1,024 ranks on 128 hosts; 1,023 wait in their backward for number 517, which reads its data."""
    hosts = []
    for number in range(128):
        first = number * 8
        processes = [_one(first + local_rank) for local_rank in range(8)]
        links = tuple(_link(first + n) for n in range(8))
        (host,) = snapshot(*processes, silence=None, connections=Connections(connections=links)).hosts
        hosts.append(msgspec.structs.replace(host, name=f"node{number:03}"))
    return Snapshot(hangdoc="test", hosts=tuple(hosts))


def _link(rank_number: int) -> Connection:
    """To the rank half the world away, and silent for four minutes."""
    other = (rank_number + 512) % 1024
    mine, theirs = (40_000, 50_000) if rank_number < other else (50_000, 40_000)
    return Connection(
        pid=20_000 + rank_number, namespace=f"net:[{rank_number // 8}]", state="ESTABLISHED",
        local_address=f"10.0.0.{rank_number // 8}", local_port=mine + rank_number % 512,
        remote_address=f"10.0.0.{other // 8}", remote_port=theirs + rank_number % 512, receive_queue_bytes=0,
        send_queue_bytes=0, bytes_moved=0, last_sent_ms=240_000, last_received_ms=240_000,
    )  # fmt: skip


def _one(number: int) -> Process:
    step = local("step", 40 if number == 517 else 41)
    counted = Progress(
        counters=(Counter(name="step", function="train", file="/home/me/train.py", before=41, after=41),)
    )
    more = {"world": 1024, "local_world": 8, "pid": 20_000 + number, "progress": counted}
    if number == 517:
        return rank(number, frame("read_table", 9, "/home/me/data.py", source="table = read(path)"),
                    train(12, locals=(step,)), **more)  # fmt: skip
    return rank(number, *c10d("all_reduce"), *backward(), train(15, locals=(step,)), **more)


def denied() -> Snapshot:
    """Two ranks of another user."""
    reason = "permission denied (needs ptrace: root, CAP_SYS_PTRACE, or the ranks' user with Yama's ptrace_scope 0)"
    no = Unavailable(reason=reason)
    processes = (rank(n, stack=no, stack_before=no, clocks=no) for n in range(2))
    return snapshot(*processes, silence=None, problems=(f"stacks: {reason}",))


def with_cards() -> Snapshot:
    """Four ranks that wait in the driver: the card of one has fallen off the bus, and one is too hot."""
    cards = (
        card(0, 100, memory_used_bytes=71 << 30, memory_total_bytes=80 << 30, temperature_celsius=41),
        card(1, 101, memory_used_bytes=12 << 30, memory_total_bytes=80 << 30, throttle=("sw_power_cap", "hw_thermal")),
        card(2, 102, utilisation=0, power_watts=73.4, sm_clock_mhz=345, links_active=17, links_inactive=(4,)),
        card(3, pids=None, utilisation=None, memory_activity=None, power_watts=None, sm_clock_mhz=None, lost=True),
        card(4, 900),
    )
    gone = CardEvent(
        kind="Xid", number=79, bus_id="0000:13:00.0", pid=103, seconds_ago=70.0, text="GPU has fallen off the bus"
    )
    ranks = (gpu_rank(number, world=4) for number in range(4))
    return snapshot(*ranks, cards=Cards(cards=cards, driver="580.159.04"), card_events=CardEvents(events=(gone,)))


def nobody() -> Snapshot:
    """A host without any rank."""
    return snapshot(silence=None)


BUILT = {
    "recorded": stands,
    "recorded-moving": lambda: stands(moving=True, ago=0.1),
    "no-permission": denied,
    "1024-ranks": thousand,
    "no-rank": nobody,
    "cards": with_cards,
}


def bundles(name: str, folder: Path) -> list[Path]:
    """The files of a situation."""
    if name in RECORDED:
        return [CORPUS / f"{RECORDED[name]}.hangdoc"]
    path = folder / f"{name}.hangdoc"
    codec.write(BUILT[name](), path)
    return [path]


def app(name: str, folder: Path) -> Top:
    """The app on it, with patience enough for none."""
    return Top(Recorded(bundles(name, folder), patience=2.0), folder=folder)


class Freezing:
    """Polls of a run that moves until it hangs, a second apart: a live source whose ranks are those of a hung snapshot."""

    title, length = "built", None

    def __init__(self, hung: Snapshot, freezes_at: int) -> None:
        self._snapshot, self._freezes_at = hung, freezes_at
        self._diagnosis, self._runs = examine(hung, patience=2.0)

    def poll(self, number: int) -> Poll:
        """Before it freezes every rank computes, loads data, or is in a collective that moves."""
        (job,) = self._diagnosis.jobs
        still = number - self._freezes_at
        if still < 0:
            ranks = tuple(_moving(view, number) for view in job.ranks)
            job = msgspec.structs.replace(
                job, verdict="healthy", hung_for_seconds=None, ranks=ranks, findings=(), blockages=()
            )
        else:
            ranks = tuple(msgspec.structs.replace(view, silent_seconds=still + 0.3) for view in job.ranks)
            job = msgspec.structs.replace(job, ranks=ranks, hung_for_seconds=still + 0.3)
        diagnosis = msgspec.structs.replace(self._diagnosis, jobs=(job,), verdict=job.verdict)
        at = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=number)
        return Poll(number, at, 0.01, self._snapshot, diagnosis, self._runs)

    def confirms(self) -> bool | None:
        """Only a poll can tell."""
        return None


def _moving(view: RankView, number: int) -> RankView:
    """What a rank does is drawn by its number and the poll's, alike in each run of the tests."""
    drawn = (view.rank * 7919 + number * 104_729) % 1000
    done = number // 3 + view.rank % 2
    if drawn >= 850:
        return msgspec.structs.replace(view, silent_seconds=0.2, batches_done=done, batches_total=None)
    state = "loading-data" if drawn < 100 else "computing"
    return msgspec.structs.replace(
        view, label="computing", state=state, operation=None, batches_done=done, batches_total=None,
        silent_seconds=0.1, cpu_percent=98.0, stack_seconds_ago=6.2 if drawn < 300 else None,
    )  # fmt: skip


def freezing(name: str, *, freezes_at: int) -> Top:
    """The app on such a run; it polls once by itself, and the test hands it the other polls (`watched`)."""
    hung = BUILT[name]() if name in BUILT else codec.read(CORPUS / f"{RECORDED[name]}.hangdoc")
    top = Top(Freezing(hung, freezes_at), rate=0.5)
    top.paused = True
    return top
