"""What is the same on all nodes, and what is not."""

from collections.abc import Sequence

from hangdoc.diagnose.causes.agreement import agreement
from hangdoc.preflight.plan import Check


def agree(name: str, values: dict[str, str | None], remedy: str, status: str = "fail") -> Check:
    """One check that a value is the same on all nodes."""
    agreed = agreement(values)
    if not agreed.differs:
        value = agreed.values[0][0] if agreed.values else None
        return Check(name=name, status="pass", text=f"{value if value is not None else 'not set'} on all nodes")
    text = "; ".join(f"{value or 'none'} on {some(nodes)}" for value, nodes in agreed.values)
    return Check(name=name, status=status, text=text, remedy=remedy, nodes=agreed.odd)


def some(nodes: Sequence[str]) -> str:
    """A few names, and how many more."""
    return ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
