"""The GPUs of this host, by NVML."""

import os
import time
from collections.abc import Callable, Iterable

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.gpu.nvml import ANSWER_SECONDS, NotStarted, NvmlChild
from hangdoc.snapshot import NOT_LOOKED_AT, Card, Cards, Unavailable

DEVICE = "/dev/nvidiactl"
_MOST_SECONDS, _SHARE = 7.0, 0.5
"""For the first answer, with the start of the child, which takes 0.1 s on an idle machine. And of the time that is left."""
_STEP_SECONDS = 0.2
_AGAIN_SECONDS = 60.0
"""After a crash."""


class GpuCards:
    """The probe. With `once`, it waits in the window for an answer, and ends the child after it. Otherwise the child stays, and
    each poll takes the last answer, whatever its age, and asks again."""

    name = "cards"

    def __init__(
        self, *, once: bool = False, device: str = DEVICE, start: Callable[..., NvmlChild] = NvmlChild
    ) -> None:
        """`device` is the file without which no driver is asked."""
        self._once, self._device, self._start = once, device, start
        self._child: NvmlChild | None = None
        self._keep_user = False
        """Whether the child has to keep root's uid, because another user was refused."""
        self._before: Cards | Unavailable = NOT_LOOKED_AT
        """What was known when there was no child."""
        self._again_at = 0.0

    def open(self, observation: Observation) -> None:
        """Ask for the first time."""
        self._ask(observation)

    def during(self, observation: Observation) -> None:
        """Wait for the first answer, or until it is clear that none comes."""
        end = time.monotonic() + min(_MOST_SECONDS, observation.deadline.remaining() * _SHARE)
        while (child := self._child) is not None:
            _wait(child, end)
            if not self._asks_with_own_user():
                return

    def close(self, observation: Observation) -> None:
        """Take in what was answered, and ask again."""
        self._ask(observation)

    def start_next_window(self, observation: Observation) -> None:
        """Nothing is kept of a window."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The cards; nothing on a host without any."""
        if self._child is not None:
            self._child.read()
        reading = self._reading()
        if self._once:
            self.release()
        if reading is not NOT_LOOKED_AT:
            yield None, "cards", reading

    def release(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _ask(self, observation: Observation) -> None:
        if self._child is None and not self._begin(observation):
            return
        assert self._child is not None  # noqa: S101
        self._child.read()
        if self._child.ended() is not None:
            self._before, self._again_at = self._reading(), time.monotonic() + _AGAIN_SECONDS
            self.release()
        elif not self._asks_with_own_user():
            self._child.ask()

    def _begin(self, observation: Observation) -> bool:
        if not observation.ranks() or time.monotonic() < self._again_at or not own_root().has(self._device):
            return False
        try:
            self._child = self._start(keep_user=self._keep_user)
        except NotStarted as why:
            self._before, self._again_at = Unavailable(reason=str(why)), float("inf")
            return False
        return True

    def _asks_with_own_user(self) -> bool:
        """Ask again with the uid of root, if another user was refused. Returns whether it did."""
        child = self._child
        if child is None or child.answer is None or child.answer.failed is None or self._keep_user or os.geteuid() != 0:
            return False
        self._keep_user = True
        self.release()
        try:
            self._child = self._start(keep_user=True)
        except NotStarted as why:
            self._before = Unavailable(reason=str(why))
            return False
        self._child.ask()
        return True

    def _reading(self) -> Cards | Unavailable:
        child = self._child
        if child is None:
            return self._before
        answer, part = child.answer, tuple(child.part[index] for index in sorted(child.part))
        cards: tuple[Card, ...] = answer.cards if answer is not None else part
        if (end := child.ended()) is not None:
            return (
                Cards(cards=part or cards, driver=child.driver, problem=end)
                if part or cards
                else Unavailable(reason=end)
            )
        late = time.monotonic() - child.asked_at if child.asked_at is not None else 0.0
        if late >= ANSWER_SECONDS:
            if not child.is_held_by_driver():
                return Unavailable(
                    reason="NVML could not be asked: the child that asks was stopped, or gets no processor"
                )
            return Cards(
                cards=cards,
                driver=child.driver,
                age_seconds=_age(answer.at) if answer is not None else 0.0,
                unanswered_seconds=round(late, 1),
                problem=f"the NVIDIA driver did not answer within {ANSWER_SECONDS:.0f} s (asked for: {child.stage})",
            )
        if answer is None:
            return Unavailable(reason="NVML has not answered yet")
        if answer.failed is not None:
            return Unavailable(reason=f"NVML: {answer.failed}")
        return Cards(cards=answer.cards, driver=answer.driver, age_seconds=_age(answer.at))


def _wait(child: NvmlChild, end: float) -> None:
    """Wait for the answer to the open question, until the driver has had its time for it, or until `end` (monotonic)."""
    while child.is_asked() and child.ended() is None:
        late = end if child.asked_at is None else min(end, child.asked_at + ANSWER_SECONDS)
        now = time.monotonic()
        if now >= late:
            return
        child.read(min(late, now + _STEP_SECONDS))


def _age(at: float) -> float:
    return round(max(0.0, time.monotonic() - at), 3)
