"""Answers in JSON that a process gives, or makes a tool give: torch's worker server, a watchdog's dump, py-spy."""

import contextlib
import copy
import json
import pickle
from random import Random
from typing import Any

from hangdoc.dumps.folder import Candidate
from hangdoc.dumps.rank_dump import NoDumpError, read_rank
from hangdoc.observe.stacks import pyspy
from hangdoc.observe.stacks.pyspy import Refused
from hangdoc.observe.torch.recorder_dumps import read
from tests.hostile.fuzz.evidence import storable

_DUMP: dict[str, Any] = {
    "version": "2.10",
    "read_ns": 5,
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": "3", "last_completed_collective": "1"}},
    "entries": [
        {
            "pg_id": "0", "process_group": ["0", "default_pg"], "collective_seq_id": str(number), "is_p2p": "false",
    "profiling_name": "gloo:all_reduce", "input_sizes": [[64, 8]], "input_dtypes": ["Float"],
    "output_sizes": [[64, 8]],
            "output_dtypes": ["Float"], "state": "completed" if number < 3 else "started", "retired": number < 3,
            "time_created_ns": "1764000000000000000", "frames": [{"name": "step", "filename": "/a/train.py", "line": 7}],
        }
        for number in range(1, 4)
    ],
}  # fmt: skip
_STACKS: list[Any] = [
    {
        "pid": 7, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 7, "active": False, "owns_gil": False,
        "frames": [
            {"name": "step", "filename": "/a/train.py", "module": None, "short_filename": "train.py", "line": 7,
             "locals": [{"name": "n", "addr": 140_000_000, "arg": True, "repr": "3"}], "is_entry": False},
            {"name": "poll", "filename": "libc.so.6", "module": None, "short_filename": None, "line": 0, "locals": None},
        ],
    }
]  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1 << 31, 1 << 63, -(1 << 63) - 1, 1 << 64, 10**30, int("9" * 4_000), 1e308, -0.0, 0.5,
    "", "0", "-1", "nan", "inf", "9" * 30, "9" * 5_000, "x" * 5_000, "\0", "\ud800", "é😀", "\u202e", [], {}, [[]],
    [None], {"": None},
)  # fmt: skip
_RAW = (
    b"1e999", b"-1e999", b"NaN", b"Infinity", b"1.0", b"\xff", b'"\xff"', b'"\\ud800"', b"[" * 50_000,
    b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900, b"", b"{", b'"', b"0" * 40, b"9" * 50_000,
    b"1" + b"0" * 300 + b".5",
)  # fmt: skip
_MARK = "hangdoc-fuzz-mark"


def changed_json(document: Any, dice: Random) -> bytes:
    """The JSON of a document in which some values, keys or bytes were changed."""
    document = json.loads(json.dumps(document))
    raws: list[bytes] = []
    for _ in range(dice.choice((1, 1, 2, 5, 20))):
        holder, key = _place(document, dice)
        kind = dice.random()
        if kind < 0.4:
            holder[key] = copy.deepcopy(dice.choice(_VALUES))
        elif kind < 0.6:
            holder[key] = _MARK
            raws.append(dice.choice(_RAW))
        elif kind < 0.7:
            holder[key] = _copies(holder[key], dice.choice((0, 2, 50)))
        elif kind < 0.8 and isinstance(holder, dict):
            holder[dice.choice(("", "x", *holder))] = holder.pop(key)
        elif kind < 0.9 and isinstance(holder, list):
            holder.extend(_copies(holder[key], dice.choice((1, 100))))
        elif isinstance(holder, dict):
            del holder[key]
        if not document:
            break
    text = json.dumps(document).encode("utf-8", "replace")
    for raw in raws:
        text = text.replace(b'"%s"' % _MARK.encode(), raw, 1)
    if dice.random() < 0.1:
        text = (
            text[: dice.randrange(len(text) + 1)]
            + dice.randbytes(dice.randrange(4))
            + text[dice.randrange(len(text) + 1) :]
        )
    return text


def _copies(value: Any, count: int) -> list[Any]:
    text = json.dumps(value)
    return [json.loads(text) for _ in range(min(count, 1 + 20_000 // len(text)))]


def _place(document: Any, dice: Random) -> tuple[Any, Any]:
    """A container in the document, and one of its keys."""
    holder, key, inner = None, None, document
    while isinstance(inner, dict | list) and inner and (holder is None or dice.random() < 0.85):
        holder = inner
        key = dice.choice(list(inner)) if isinstance(inner, dict) else dice.randrange(len(inner))
        inner = inner[key]
    return holder, key


def attack_recorder(dice: Random) -> None:
    """A dump of the flight recorder."""
    with contextlib.suppress(ValueError):
        storable(read(changed_json(_DUMP, dice), "test"))


def attack_dump(dice: Random) -> None:
    """A file that torch's recorder has left: JSON with changed values, or a pickle with changed values or bytes."""
    raw = changed_json(_DUMP, dice)
    if dice.random() < 0.8:
        with contextlib.suppress(ValueError, RecursionError):
            raw = pickle.dumps(json.loads(raw), dice.choice((2, 4, 5)))
    if dice.random() < 0.6:
        raw = _changed_bytes(raw, dice)
    with contextlib.suppress(NoDumpError):
        recorder = read_rank(Candidate("rank_0", "rank_", 0, raw, dice.choice((0, 1_764_000_000_000_000)))).recorder
        storable(recorder)


def _changed_bytes(raw: bytes, dice: Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(dice.choice((1, 2, 8))):
        at = dice.randrange(len(changed) + 1)
        if dice.random() < 0.5:
            changed[at : at + 1] = dice.randbytes(1)
        else:
            changed[at : at + dice.randrange(20)] = dice.randbytes(dice.randrange(20))
    return bytes(changed[: dice.randrange(len(changed) + 1)] if dice.random() < 0.2 else changed)


def attack_stacks(dice: Random) -> None:
    """The output of py-spy for a process that chooses its names and values."""
    with contextlib.suppress(Refused):
        storable(pyspy.parse(changed_json(_STACKS, dice), 0.0))
