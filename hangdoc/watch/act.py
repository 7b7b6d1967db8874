"""What the watch does about a confirmed hang and about its end: evidence on disk, a command, a web hook. A failure of one of
them neither ends the watch nor delays its looks, and none of them needs another: with a full disk the messages are sent."""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hangdoc.diagnosis import Diagnosis
from hangdoc.phrases import duration
from hangdoc.snapshot import Snapshot
from hangdoc.watch import deliver, messages
from hangdoc.watch.confirm import Confirmed, Resolved
from hangdoc.watch.evidence import EvidenceDirectory, Kept
from hangdoc.watch.hangs import Hang
from hangdoc.watch.message_queue import MessageQueue
from hangdoc.watch.state import Ledger, Message


class Targets(NamedTuple):
    """What receives messages: the words of a command, and the address of a web hook with the form of its messages."""

    command: tuple[str, ...] = ()
    webhook: str | None = None
    form: messages.Format = "generic"


class Reaction:
    """Acts on what looks show. It reports what fails, and does the rest."""

    def __init__(
        self, evidence: EvidenceDirectory, ledger: Ledger, targets: Targets, log: Callable[[str], None],
        show: Callable[[Kept], None],
    ) -> None:  # fmt: skip
        self.ledger = ledger
        self._evidence, self._log, self._show, self._form = evidence, log, show, targets.form
        self._webhook = self._command = None
        if targets.webhook is not None:
            self._webhook = MessageQueue("webhook", ledger, deliver.webhook(targets.webhook), log)
        if targets.command:
            self._command = MessageQueue("on-hang", ledger, deliver.command(targets.command), log)
        self.evidence_bytes = evidence.bytes()

    def act(
        self, snapshot: Snapshot, diagnosis: Diagnosis, began: Iterable[Confirmed], over: Iterable[Resolved] = (),
        hangs: tuple[Hang, ...] = (),
    ) -> list[Kept]:  # fmt: skip
        """Write evidence, save the state, queue messages; returns the evidence. `hangs` are all that are not over. They are
        saved in one step with the messages, so that a kill in between neither loses nor repeats a message."""
        began, over = list(began), list(over)
        written = [
            (confirmed, self._evidence.keep(snapshot, messages.only_job(diagnosis, confirmed.job), confirmed.hang.id))
            for confirmed in began
        ]
        now = time.monotonic()
        with self.ledger.changing():
            self.ledger.hangs = hangs
            for confirmed, kept in written:
                self._queue_began(diagnosis, confirmed, kept, now)
            for end in over:
                self._queue_over(diagnosis, end, now)
            self.ledger.counts.hangs += len(began)
            self.ledger.counts.resolved += len(over)
        for confirmed, kept in written:
            self._show(kept)
            files = {"bundle": kept.bundle, "report": kept.report, "page": kept.page}
            if any(files.values()):
                self._log(", ".join(f"{what} {path}" for what, path in files.items() if path is not None))
            if kept.problem is not None:
                absent = " and ".join(what for what, path in files.items() if path is None)
                self._log(
                    f"{kept.problem} The {absent} of hang {confirmed.hang.id} could not be kept; messages are sent."
                )
        for end in over:
            how = "makes progress again" if end.ending == "goes-on" else "has ended"
            later = f"{duration(now - end.hang.since)} after it was first observed to hang"
            self._log(f"resolved: hang {end.hang.id}: job {end.hang.job} {how}, {later}")
        if written:
            self.evidence_bytes = self._evidence.bytes()
        return [kept for _, kept in written]

    def pending(self) -> dict[str, int]:
        """Messages that are not delivered yet, by target."""
        with self.ledger.lock:
            return {target: len(queue) for target, queue in self.ledger.queues.items()}

    def finish(self) -> None:
        """Wait until all messages are delivered: for the command as long as it may run, for the web hook at most 20 s. Reports
        messages that are left."""
        for queue, seconds in (
            (self._command, deliver.COMMAND_SECONDS + 1.0),
            (self._webhook, 2.0 * deliver.HOOK_SECONDS),
        ):
            if queue is not None and not queue.finish(seconds):
                self._log(f"--{queue.target}: {queue.pending()} messages could not be delivered in {seconds:g} s")

    def _queue_began(self, diagnosis: Diagnosis, confirmed: Confirmed, kept: Kept, now: float) -> None:
        event = messages.event_of(confirmed.hang, diagnosis, confirmed.job, now - confirmed.hang.since, kept=kept)
        about = f"hang {event.id} of {event.job}"
        if self._webhook is not None:
            text = messages.body(self._form, diagnosis, event, confirmed.job)
            self._webhook.add(Message(delivery=event.delivery, about=about, body=text))
        if self._command is not None:
            text = deliver.call_of(event, kept, confirmed.job.verdict)
            self._command.add(Message(delivery=event.delivery, about=about, body=text))

    def _queue_over(self, diagnosis: Diagnosis, end: Resolved, now: float) -> None:
        if self._webhook is None:
            return
        event = messages.event_of(end.hang, diagnosis, end.job, now - end.hang.since, end.ending)
        text = messages.body(self._form, diagnosis, event, end.job)
        about = f"the end of hang {event.id} of {event.job}"
        self._webhook.add(Message(delivery=event.delivery, about=about, body=text))

    def remember(self, hangs: tuple[Hang, ...]) -> None:
        """Save hangs that are not confirmed yet, so that a restarted watch continues from here."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.ledger.changing() if hangs != self.ledger.hangs else self.ledger.lock)
            self.ledger.hangs = hangs
