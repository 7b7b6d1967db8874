"""All keys of the app. Help, command palette, footer and docs/top.md are made from these bindings."""

from collections.abc import Iterable, Iterator

from textual.binding import Binding, BindingType
from textual.keys import format_key

from hangdoc_tui.grid import Grid

VIEWS = {
    "ranks": "A timeline for each rank: what it did at each poll, what it is doing now, and where",
    "stack": "The stack of the selected rank, with source lines and variables",
    "tree": "The stacks of all ranks as one tree: ranks with equal frames share a branch",
    "waits": "Which ranks wait for which, the culprit first; a cycle is drawn as a cycle",
    "batches": "Batches done of those expected, by rank, and a plot over time if ranks make progress",
    "sockets": "Connections between ranks, both ends in one row: queues, silence, retransmits",
    "settings": "Arguments and environment variables that differ between ranks, the most serious first",
    "events": "What changed, the newest first",
    "cards": "The GPUs: use, memory, power, what slows them down, errors, and the ranks on each",
}
"""Name of each view and what it shows, in the order of their keys."""

AT_ONCE = ("go", "filter")
"""Actions whose keys come before all widgets. Otherwise, keys that are typed quickly after `/` would still be commands: by the
time that a table has handed `/` on, the next key is there."""
_VIEWS = Binding.Group("Views")
_RANKS = Binding.Group("Ranks and jobs")
_FINDINGS = Binding.Group("Findings")
_CONTENT = Binding.Group("Stacks and settings")
_POLLS = Binding.Group("Polls")
_FILES = Binding.Group("Files")
_SIGNALS = Binding.Group("Signals, with --allow-signals")
_HELP = Binding.Group("Help")


def _key(
    key: str,
    action: str,
    description: str,
    tooltip: str,
    group: Binding.Group,
    *,
    footer: bool = False,
    shown_as: str | None = None,
) -> Binding:
    return Binding(
        key,
        action,
        description,
        show=footer,
        tooltip=tooltip,
        group=group,
        key_display=shown_as,
        priority=action.partition("(")[0] in AT_ONCE,
    )


BINDINGS: tuple[Binding, ...] = (
    *(_key(str(at), f"go('{name}')", f"show {name}", what, _VIEWS) for at, (name, what) in enumerate(VIEWS.items(), 1)),
    _key("slash", "filter", "filter", "Show only the rows that contain all of these words", _RANKS, footer=True),
    _key("s", "sort", "sort", "Sort the ranks by the next column", _RANKS, footer=True),
    _key("S", "reverse", "reverse", "Reverse the order: ▴ the smallest first, ▾ the largest first", _RANKS),
    _key(
        "g",
        "group",
        "group",
        "A row is one rank, a class of equal ranks, a host, or a block of ranks",
        _RANKS,
        footer=True,
    ),
    _key("z", "zoom", "zoom", "Show only the ranks of the row under the cursor", _RANKS, footer=True),
    _key("escape", "leave", "back", "Zoom out, or end the filter", _RANKS, shown_as="esc"),
    _key("f", "follow", "follow the culprit", "Keep the culprit selected", _RANKS),
    _key("left_square_bracket", "step(-1)", "previous rank", "Select the previous rank", _RANKS),
    _key("right_square_bracket", "step(1)", "next rank", "Select the next rank", _RANKS),
    _key("j", "next_job", "next job", "Show the next job", _RANKS),
    _key("i", "findings", "findings", "Show all findings, with evidence and remedy", _FINDINGS, footer=True),
    _key("u", "unseen", "not observed", "Show what hangdoc could not observe, and why", _FINDINGS),
    _key("c", "copy", "copy a command", "Copy the first command of the findings", _FINDINGS),
    _key("n", "native", "native frames", "Show C++ frames, or hide them", _CONTENT),
    _key("l", "locals", "variables", "Show local variables, or hide them", _CONTENT),
    _key(
        "d", "compare", "compare", "Compare the stack with the last poll, with another rank, or with nothing", _CONTENT
    ),
    _key("a", "all_settings", "all settings", "Show all settings, or only those that differ", _CONTENT),
    _key("p", "pause", "pause", "Stop polling, or continue", _POLLS),
    _key("plus,equals_sign", "rate(-1)", "poll more often", "Poll at the next shorter interval", _POLLS),
    _key("minus", "rate(1)", "poll less often", "Poll at the next longer interval", _POLLS),
    _key("comma", "slide(-1)", "previous poll", "In a recording, show the previous poll", _POLLS),
    _key("full_stop", "slide(1)", "next poll", "In a recording, show the next poll", _POLLS),
    _key("w", "write", "write a bundle", "Save this poll's evidence as a bundle", _FILES),
    _key("r", "report", "write the report", "Save this poll's report and page", _FILES),
    _key("C", "continue_rank", "continue the rank", "Continue the selected rank if it is stopped (SIGCONT)", _SIGNALS),
    _key("K", "end_rank", "end the orphan", "End the selected rank if its launcher is gone (SIGTERM)", _SIGNALS),
    _key("ctrl+p", "command_palette", "commands", "Search all commands", _HELP, footer=True),
    _key("question_mark", "keys", "keys", "Show all keys", _HELP, footer=True),
    _key("q", "quit", "quit", "Leave hangdoc top", _HELP, footer=True),
)


def shown(binding: Binding) -> str:
    """The name of a key: `?`, `ctrl+p`, `[`."""
    if binding.key_display is not None:
        return binding.key_display
    *modifiers, key = binding.key.partition(",")[0].split("+")
    return "+".join((*modifiers, format_key(key)))


def groups() -> Iterator[tuple[str, list[Binding]]]:
    """All keys by group. The keys of the tables are last."""
    bindings_by_group: dict[str, list[Binding]] = {}
    for binding in Binding.make_bindings((*BINDINGS, *Grid.BINDINGS)):
        together = bindings_by_group.setdefault(binding.group.description if binding.group is not None else "", [])
        if all(other.action != binding.action for other in together):  # if several keys have the same action, the first
            together.append(binding)
    yield from bindings_by_group.items()


def footer(width: int) -> list[Binding]:
    """The keys that a new user needs, as many as fit into `width`. The last two, `keys` and `quit`, are always among them."""
    bindings = [binding for binding in BINDINGS if binding.show]
    while len(bindings) > 2 and sum(len(f"{shown(binding)} {binding.description}") + 2 for binding in bindings) > width:
        del bindings[-3]
    return bindings


def hint(bindings: Iterable[BindingType]) -> str:
    """`esc close, c copy the command`: the keys of a page, each action once."""
    texts = {
        binding.action: f"{shown(binding)} {binding.description}"
        for binding in reversed(list(Binding.make_bindings(bindings)))
    }
    return ", ".join(reversed(texts.values()))


def markdown() -> str:
    """The table of docs/top.md."""
    lines = ["| key | command | does |", "| --- | --- | --- |"]
    for title, bindings in groups():
        lines.append(f"| **{title}** | | |")
        lines += [f"| `{shown(binding)}` | {binding.description} | {binding.tooltip} |" for binding in bindings]
    return "\n".join(lines)
