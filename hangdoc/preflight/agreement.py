"""Checks that a value is the same on all nodes."""

from collections.abc import Sequence

from hangdoc.preflight.plan import Check
from hangdoc.reasoning.model.agreement import compare_values


def agree(name: str, values: dict[str, str | None], remedy: str, status: str = "fail") -> Check:
    """A check that passes if all nodes have the same value. `values` is by node; `status` is that of a difference."""
    agreed = compare_values(values)
    if not agreed.differs:
        value = agreed.values[0][0] if agreed.values else None
        where = " on all nodes" if len(values) > 1 else ""
        return Check(name=name, status="pass", text=f"{value if value is not None else 'not set'}{where}")
    text = "; ".join(f"{value or 'none'} on {shorten(nodes)}" for value, nodes in agreed.values)
    return Check(name=name, status=status, text=text, remedy=remedy, nodes=agreed.odd)


def shorten(nodes: Sequence[str]) -> str:
    """The first four names, and the number of the others."""
    return ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
