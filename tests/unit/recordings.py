"""Records of calls for tests: from torch's own dump, and from lists of calls."""

from collections.abc import Iterable, Sequence
from typing import Any

from hangdoc.snapshot import CallForm, CallHistory, FlightRecorder, Frame, Recorded, RecordedGroup

_DTYPES = {"Float": "float32", "Long": "int64", "Byte": "uint8", "Int": "int32"}
T0_US = 1_790_000_000_000_000


def frames(*sites: tuple[str, int, str]) -> tuple[Frame, ...]:
    """Frames of the user's code: (file, line, function)."""
    return tuple(Frame(file=f"/home/me/{file}", line=line, function=function) for file, line, function in sites)


def history_of(
    entries: Sequence[tuple[int, CallForm, int, bool]],
    *,
    name: str = "0",
    wall_us: int,
    forms: dict[CallForm, int],
    kept: int | None = None,
    ranks: tuple[int, ...] = (),
    timeout: float | None = 1800.0,
    before: int | None = None,
) -> RecordedGroup:
    """A group with these (number, form, made at, pending). `forms` gets the new ones. Only the last `kept` are in the record."""
    entries = list(entries)[-kept:] if kept else list(entries)
    done = [entry for entry in entries if not entry[3]]

    def recorded(entry: tuple[int, CallForm, int, bool]) -> Recorded:
        number, form, made, _ = entry
        return Recorded(
            seq=number, op=form.op, inputs=form.inputs, outputs=form.outputs, frames=form.frames,
            age_seconds=(wall_us - made) / 1e6, timeout_seconds=timeout,
        )  # fmt: skip

    return RecordedGroup(
        name=name,
        default=name == "0",
        ranks=ranks,
        issued=entries[-1][0],
        issued_before=before,
        completed=recorded(done[-1]) if done else None,
        pending=tuple(recorded(entry) for entry in entries if entry[3])[:4],
        history=CallHistory(
            numbers=tuple(entry[0] for entry in entries),
            forms=tuple(forms.setdefault(entry[1], len(forms)) for entry in entries),
            made_us=tuple(entry[2] for entry in entries),
        ),
    )


def recorder(*groups: RecordedGroup, forms: dict[CallForm, int]) -> FlightRecorder:
    """The record of a rank."""
    return FlightRecorder(source="memory", age_seconds=0.0, groups=groups, forms=tuple(forms), capacity=2000)


def from_dump(dump: dict[str, Any], wall_us: int) -> FlightRecorder:
    """The record that is in a dump of torch's own (`_dump_fr_trace`), as the reader of memory gives it."""
    by_group: dict[str, list[tuple[int, CallForm, int, bool]]] = {}
    for entry in dump["entries"]:
        if entry["is_p2p"]:
            continue
        form = CallForm(
            op=entry["profiling_name"].rpartition(":")[2],
            inputs=tuple(_tensors(entry["input_dtypes"], entry["input_sizes"])),
            outputs=tuple(_tensors(entry["output_dtypes"], entry["output_sizes"])),
            frames=tuple(
                Frame(
                    function=frame["name"], file=frame["filename"], line=frame["line"],
                    library="site-packages" in frame["filename"],
                )
                for frame in entry["frames"]
            ),
        )  # fmt: skip
        by_group.setdefault(entry["process_group"][0], []).append(
            (entry["collective_seq_id"], form, entry["time_created_ns"] // 1000, not entry["retired"])
        )
    forms: dict[CallForm, int] = {}
    groups = [history_of(entries, name=name, wall_us=wall_us, forms=forms) for name, entries in by_group.items()]
    return recorder(*groups, forms=forms)


def _tensors(dtypes: Iterable[str], sizes: Iterable[Sequence[int]]) -> Iterable[str]:
    for dtype, size in zip(dtypes, sizes, strict=False):
        yield f"{_DTYPES.get(dtype, dtype.lower())}[{', '.join(map(str, size))}]"
