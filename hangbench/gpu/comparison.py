"""What hangdoc reads of the ranks' records beside the dumps that torch writes inside of them."""

import json
from collections.abc import Mapping
from pathlib import Path

from hangbench.recorder import Comparison, read_records
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.recorder_history import Record


def records_of(pid: int) -> list[Record]:
    """The records of a process; none if it has none."""
    try:
        return read_records(pid)
    except Unreadable:
        return []


def compare_with_dump(
    ranks: Mapping[int, int], before: Mapping[int, list[Record]], dumps: Mapping[int, Path], output: Path
) -> str:
    """Compare field by field, and write what differs. The result in one line.

    `ranks` has the pids. `before` was read before the dumps were written, so that what the ranks did meanwhile is left out."""
    whole, lines, without = Comparison(), list[str](), list[int]()
    for rank, pid in ranks.items():
        if rank not in dumps or not dumps[rank].exists():
            without.append(rank)
            continue
        dump = json.loads(dumps[rank].read_text())
        if "error" in dump:
            lines.append(f"rank {rank}: torch wrote no dump: {dump['error']}")
            continue
        after = {record.kind: record for record in records_of(pid)}
        for record in before.get(rank, []):
            if record.kind in dump and record.kind in after:
                whole.compare_stable(record, after[record.kind], dump[record.kind])
                if record.calls.calls and dump[record.kind]["groups"]:  # hangdoc reads the groups of calls
                    whole.compare_groups(record, dump[record.kind])
            else:
                lines.append(f"rank {rank}: there is no dump of the record of {record.kind}")
    for field, (ours, theirs) in whole.examples.items():
        lines.append(f"{field}: hangdoc {ours!r:.600}, torch {theirs!r:.600}")
    output.write_text(f"{whole}\n" + "\n".join(lines) + "\n")
    different = ", ".join(f"{field} {count}" for field, count in whole.different.items())
    return (
        f"{whole.entries} entries, {whole.groups} groups: {different or 'equal'}"
        + (f"; {whole.unnoticed} times not noticed" if whole.unnoticed else "")
        + (f"; no dump of ranks {without}" if without else "")
    )
