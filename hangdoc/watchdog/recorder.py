"""torch's flight recorder, read by the rank itself after its deadline."""

import io
import json
import pickle
import sys
import time
from typing import Any

_PENDING = 8
_SYMBOLIZER = "torch._inductor.codecache"


class _Plain(pickle.Unpickler):
    """Loads only numbers, texts and containers, which is all that a recorder's dump contains."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse any class. Raises UnpicklingError."""
        raise pickle.UnpicklingError(f"a flight recorder's dump must not contain {module}.{name}")


def dump() -> bytes | None:
    """JSON in the format of torch's `fr_trace_json`, with the last completed collective of each group, the first pending ones and
    the last one. It has Python frames only if torch's symbolizer is loaded already: loading it imports some 800 modules
    (torch 2.13, py_symbolize), which takes a second of CPU and a working file system. None without torch or without records.
    Raises whatever torch raises."""
    frames = _SYMBOLIZER in sys.modules
    c10d = getattr(sys.modules.get("torch._C"), "_distributed_c10d", None)
    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        dump_trace = getattr(c10d, name, None)
        if dump_trace is None:
            continue
        records = _Plain(io.BytesIO(dump_trace(True, frames, False))).load()
        if records.get("entries"):
            return json.dumps(_shorten(records) | {"read_ns": time.monotonic_ns()}).encode()
    return None


def _shorten(records: dict[str, Any]) -> dict[str, Any]:
    groups: dict[Any, list[dict[str, Any]]] = {}
    for entry in records["entries"]:
        groups.setdefault(entry.get("pg_id"), []).append(entry)
    kept = []
    for entries in groups.values():
        pending = [entry for entry in entries if not entry.get("retired")]
        kept += [entry for entry in entries if entry.get("retired")][-1:] + pending[:_PENDING]
        kept += pending[_PENDING:][-1:]  # its number is how far the rank has come
    # pg_config has no entry for Gloo's groups although records name them, and torch's own analyzer fails on that.
    config = {
        name: {"name": name, "desc": desc, "ranks": json.dumps(_list_members().get(name, []))}
        for name, desc in {tuple(entry["process_group"]) for entry in kept if len(entry.get("process_group", ())) == 2}
    }
    return {**records, "entries": kept, "pg_config": {**records.get("pg_config", {}), **config}}


def _list_members() -> dict[str, list[int]]:
    """The ranks of each group by its name, as far as this version of torch keeps them."""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    names, ranks = getattr(world, "pg_names", {}), getattr(world, "pg_group_ranks", {})
    return {name: sorted(ranks.get(group, {})) for group, name in names.items()}
