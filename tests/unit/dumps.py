"""Dumps of torch's flight recorder for tests: made by hand, as torch 2.11 writes them."""

import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

T0_NS = 1_790_000_000 * 10**9
S = 10**9
SITE = ("/home/me/train.py", 14, "train")
PREFIX = "comm_lib_trace_rank_"


class Rank:
    """The record of one rank, call by call. Times in seconds after the start."""

    def __init__(self, rank: int, *, timeout: float = 600.0, first_id: int = 0) -> None:
        self.rank = rank
        self._timeout_ms = int(timeout * 1000)
        self._entries: list[dict[str, Any]] = []
        self._first_id = first_id
        self._counts: dict[tuple[str, bool], int] = {}
        self._frames: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._groups: dict[str, tuple[str, Sequence[int]]] = {}

    def group(self, ranks: Sequence[int], name: str = "0") -> "Rank":
        """A group that it is a member of; the default group is `0`."""
        self._groups[name] = ("default_pg" if name == "0" else "undefined", ranks)
        return self

    def call(
        self,
        op: str,
        at: float,
        *,
        done: float | None = None,
        size: Sequence[int] = (64,),
        group: str = "0",
        number: int | None = None,
        site: tuple[str, int, str] | None = SITE,
        in_batch: bool = False,
        dtype: str = "Float",
    ) -> "Rank":
        """A call, and when it was complete; None if it was not. `in_batch`: one of a batch of sends and receives."""
        p2p = op.startswith(("send ", "recv "))
        key = group, p2p
        counted = self._counts.get(key, 0)
        last_of_batch = op == "coalesced"
        if number is None:
            same = (in_batch and bool(self._entries) and self._entries[-1].get("_batch")) or last_of_batch
            number = counted if same else counted + 1
        if not last_of_batch:
            self._counts[key] = number
        about = self._groups[group][0]
        collective, sends = self._counts.get((group, False), 0), self._counts.get((group, True), 0)
        self._entries.append(
            {
                "frames": [] if site is None else [self._frame(site), self._frame((site[0], 99, "<module>"))],
                "record_id": self._first_id + len(self._entries), "pg_id": int(group) if group.isdigit() else 7,
                "process_group": (group, about), "collective_seq_id": collective if p2p or last_of_batch else number,
                "p2p_seq_id": sends, "op_id": 1 + len(self._entries), "profiling_name": f"nccl:{op}",
                "time_created_ns": T0_NS + int(at * S), "input_sizes": [list(size)], "input_dtypes": [dtype],
                "output_sizes": [list(size)], "output_dtypes": [dtype],
                "state": "scheduled" if done is None else "completed", "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None if done is None else T0_NS + int(done * S),
                "retired": done is not None, "timeout_ms": self._timeout_ms, "is_p2p": p2p, "_batch": in_batch,
            }
        )  # fmt: skip
        return self

    def many(self, op: str, first: int, last: int, *, every: float = 0.1, done: bool = True, **more: Any) -> "Rank":
        """Calls with these numbers."""
        for number in range(first, last + 1):
            at = number * every
            self.call(op, at, done=at + every / 2 if done else None, number=number, **more)
        return self

    def dump(self) -> dict[str, Any]:
        """As torch's pickler has it."""
        entries = [{name: value for name, value in each.items() if name != "_batch"} for each in self._entries]
        config = {
            name: {"name": name, "desc": about, "ranks": str(list(ranks))}
            for name, (about, ranks) in self._groups.items()
        }
        enqueued = {name: self._counts.get((name, False), 0) for name in self._groups}
        status = {
            str(int(name) if name.isdigit() else 7): {
                "last_enqueued_collective": number, "last_started_collective": -1, "last_completed_collective": -1,
            }
            for name, number in enqueued.items()
        }  # fmt: skip
        return {
            "version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": status, "entries": entries,
        }  # fmt: skip

    def _frame(self, site: tuple[str, int, str]) -> dict[str, Any]:
        file, line, name = site
        return self._frames.setdefault(site, {"name": name, "filename": file, "line": line})


def write(folder: Path, ranks: Iterable[Rank], *, at: float | None = None, prefix: str = PREFIX) -> Path:
    """The files of some ranks, written `at` seconds after the start; by default, their times are of a later copy."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        path = folder / f"{prefix}{rank.rank}"
        path.write_bytes(pickle.dumps(rank.dump(), 2))
        set_time(path, at)
    return folder


def set_time(path: Path, at: float | None) -> None:
    """Make it a file that was written `at` seconds after the start, or copied much later."""
    seconds = T0_NS / S + (at if at is not None else 90 * 86_400)
    os.utime(path, (seconds, seconds))


def as_json(dump: Mapping[str, Any]) -> dict[str, Any]:
    """The same dump as torch's JSON has it: without frames, absent times as 0, and some numbers as texts."""
    entries = [
        {
            **{name: value for name, value in each.items() if name != "frames"},
            "process_group": list(each["process_group"]),
            **{name: each[name] or 0 for name in ("time_discovered_started_ns", "time_discovered_completed_ns")},
        }
        for each in dump["entries"]
    ]
    status = {name: {key: str(value) for key, value in counts.items()} for name, counts in dump["pg_status"].items()}
    return {**dump, "entries": entries, "pg_status": status, "nccl_comm_state": {}}
