"""Preflight under torchrun: the nodes exchange messages through the store of the run, and then make a real all-reduce.

This is the only module of hangdoc that imports torch, because only torch can make its all-reduce. It runs in processes that
torchrun has started for preflight alone."""

import datetime
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
import torch.distributed

from hangdoc import untrusted
from hangdoc.preflight import session
from hangdoc.preflight.plan import Check, Link, NodeReport, Plan
from hangdoc.torch_facts import environment_names

dist: Any = torch.distributed  # mypy does not know its stores
Store = Any
ANSWER_SECONDS = 20.0
REDUCE_SECONDS = 30.0
_NUMBERS = 1_000_000
_GRACE = 5.0
_MAX_ANSWER_BYTES = 4 << 20


def store() -> Store:
    """The store of the run: that of torchrun's agent, or rank 0's without an agent."""
    agent = os.environ.get(environment_names.AGENT_STORE) == "True"
    plain = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=not agent and os.environ["RANK"] == "0",
        timeout=datetime.timedelta(seconds=ANSWER_SECONDS), wait_for_workers=False,
    )  # fmt: skip
    return dist.PrefixStore("hangdoc-preflight", plain)


class Conductor:
    """Sends messages to all nodes through the store, and collects their answers. Runs on the first node."""

    def __init__(self, store: Store, nodes: int, own: session.Node) -> None:
        self._store, self._nodes, self._own, self._round = store, nodes, own, 0
        self.silent: dict[str, str] = {}

    def ask(self, message: session.Message) -> Mapping[str, session.NodeAnswer]:
        """Send a message to all nodes, and return the answers that came in time, by node."""
        number, self._round = self._round, self._round + 1
        self._store.set(f"message/{number}", msgspec.json.encode(message).decode())
        mine = self._own.answer(message)
        answers = {"node 0": mine}
        until = time.monotonic() + ANSWER_SECONDS
        for node in range(1, self._nodes):
            name = f"node {node}"
            if name in self.silent:
                continue
            try:
                left = max(0.1, until - time.monotonic())
                self._store.wait([f"answer/{number}/{node}"], datetime.timedelta(seconds=left))
                raw = self._store.get(f"answer/{number}/{node}")
                answers[name] = untrusted.decode(raw, session.NodeAnswer, _MAX_ANSWER_BYTES)
            except (RuntimeError, untrusted.UntrustedError):
                self.silent[name] = f"no reply within {ANSWER_SECONDS:g} s"
        return answers


def answer(store: Store, node: int, own: session.Node) -> None:
    """Answer the messages of the first node until the end. Runs on every other node."""
    number = 0
    while True:
        store.wait([f"message/{number}"], datetime.timedelta(seconds=4 * ANSWER_SECONDS))
        try:
            message = untrusted.decode(store.get(f"message/{number}"), session.Message, _MAX_ANSWER_BYTES)
        except untrusted.UntrustedError as error:
            raise SystemExit(
                f"hangdoc: a message of node 0 {error}. Use the same version of hangdoc on all nodes."
            ) from None
        store.set(f"answer/{number}/{node}", msgspec.json.encode(own.answer(message)).decode())
        if message.do == "end":
            return
        number += 1


def conduct(store: Store, plan: Plan, own: session.Node) -> tuple[list[NodeReport], list[Link], dict[str, str]]:
    """Run the session on the first node: (reports, links, reasons by node that did not answer)."""
    conductor = Conductor(store, plan.nodes or 1, own)
    reports, links = session.drive(session.conduct(plan), conductor.ask)
    return reports, links, conductor.silent


def decide(store: Store, go: bool) -> None:
    """Announce to all ranks whether to make the all-reduce."""
    store.set("reduce", "go" if go else "skip")


def reduce(store: Store) -> Check | None:
    """Make a real all-reduce on all ranks, if the first node has decided so. If it does not return, ends the process."""
    try:
        store.wait(["reduce"], datetime.timedelta(seconds=6 * ANSWER_SECONDS))
        if store.get("reduce") != b"go":
            return None
    except RuntimeError:
        return None
    ended = threading.Event()
    threading.Thread(target=_end_after, args=(ended,), daemon=True).start()
    try:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=REDUCE_SECONDS))
        numbers = torch.ones(_NUMBERS)
        dist.all_reduce(numbers)
        began = time.perf_counter()
        dist.all_reduce(numbers)
        took = time.perf_counter() - began
        world = dist.get_world_size()
        right = bool(numbers[0] == world**2)
        dist.destroy_process_group()
    except (RuntimeError, ValueError) as error:
        return Check(
            name="all-reduce",
            status="fail",
            text=str(error).splitlines()[0][:200],
            remedy="Fix the failed checks above.",
        )
    finally:
        ended.set()
    return Check(
        name="all-reduce", status="pass" if right else "fail",
        text=f"{world} ranks reduced {_NUMBERS:,} numbers in {took * 1000:.0f} ms{'' if right else ', but the sum is wrong'}",
    )  # fmt: skip


def _end_after(ended: threading.Event) -> None:
    """End the process if the all-reduce hangs. Gloo's own timeout does not cover every case."""
    if not ended.wait(REDUCE_SECONDS + _GRACE):
        print(f"fail    all-reduce  rank {os.environ['RANK']} did not finish within {REDUCE_SECONDS:g} s", flush=True)
        os._exit(1)
