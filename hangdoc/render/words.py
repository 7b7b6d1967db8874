"""Words, glyphs and colours that all views share. Every glyph has a word beside it, so no view depends on colour."""

from hangdoc.diagnosis import Job, Operation, RankView, Where
from hangdoc.phrases import caller

VERDICT_STYLE = {
    "hung": "bold red",
    "waiting": "bold yellow",
    "healthy": "bold green",
    "unknown": "bold magenta",
}
LABEL_STYLE = {"computing": "green", "blocked": "yellow", "dead": "red", None: "magenta"}
LABEL_GLYPH = {"computing": "▶", "blocked": "■", "dead": "✗", None: "?"}
SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def clean(text: str) -> str:
    """Text from a process, safe for a terminal: no control or formatting characters."""
    return "".join(c if c.isprintable() else "·" for c in text)


def operation(op: Operation | None) -> str:
    """`all_reduce (DDP backward)`, `recv from 1`, `barrier of group 2`, `store.wait`."""
    if op is None:
        return ""
    text = "store.wait" if (op.op, op.origin) == ("wait", "store") else op.op
    if op.peer is not None:
        text += f" {'to' if 'send' in op.op else 'from'} {op.peer}"
    if op.group is not None:
        text += f" of group {op.group}"
    return clean(text + (f" ({caller(op.origin)})" if op.origin not in (None, "user", "store") else ""))


def place(where: Where | None) -> str:
    """`train.py:15 in train`."""
    return "" if where is None else clean(f"{where.file}:{where.line} in {where.function}")


def classes(job: Job) -> list[list[RankView]]:
    """Groups of ranks in the same state, in the order of their lowest number: one row each."""
    found: dict[object, list[RankView]] = {}
    for rank in job.ranks:
        key = (rank.label, rank.state, rank.operation, rank.where, rank.batches_done, rank.batches_total)
        found.setdefault(key, []).append(rank)
    return sorted(found.values(), key=lambda group: group[0].rank)
