"""Pages over the main screen: a finding, the keys, what was not observed, and the question before a signal."""

from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from hangdoc.diagnosis import Finding
from hangdoc.reasoning.rules import all_rules
from hangdoc.render import words
from hangdoc.render.text import Programs, as_typed, facts
from hangdoc_tui import keys

_KEYS = "keys"


class Content(NamedTuple):
    """What a page shows."""

    title: str
    body: RenderableType
    command: str | None = None
    """To copy."""


class Page(ModalScreen[None]):
    """A text that scrolls; Escape, q or Enter closes it. It is built again at each poll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "close", key_display="esc"),
        Binding("c", "copy", "copy the command"),
        Binding("question_mark", "keys", "keys"),
    ]

    def __init__(self, build: Callable[[], Content]) -> None:
        super().__init__()
        self._build, self._content = build, build()

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll(id="page"):
            yield Static(self._content.body, markup=False)

    def on_mount(self) -> None:
        """Write the border."""
        self._show_border()

    def renew(self) -> None:
        """Show what is true now."""
        self._content = self._build()
        self.query_one(Static).update(self._content.body)
        self._show_border()

    def _show_border(self) -> None:
        box = self.query_one("#page")
        box.border_title = self._content.title
        box.border_subtitle = keys.hint(self.BINDINGS[: 2 if self._content.command is not None else 1])

    def action_keys(self) -> None:
        """Show all keys over this page."""
        if self._content.title != _KEYS:
            self.app.push_screen(Page(describe_keys))

    def action_copy(self) -> None:
        """Copy the command to the terminal's clipboard."""
        if (command := self._content.command) is not None:
            self.app.copy_to_clipboard(command)
            self.notify(f"copied: {command}", markup=False)


def describe_findings(findings: Iterable[Finding], programs: Programs) -> Content:
    """The culprits, victims, evidence, remedy and commands of each finding, and the rule of the first one.
    `programs`: as for `hangdoc.render.text.report`."""
    parts: list[RenderableType] = []
    all_findings = list(findings)
    for finding in all_findings:
        parts += [*_describe_finding(finding, programs), Text("")]
    rule = next((rule for rule in all_rules() if all_findings and all_findings[0].code == rule.code), None)
    if rule is not None:
        from rich.markdown import Markdown  # its parser takes longer to import than a page to draw

        parts.append(Markdown(rule.titled_page))
    return Content(
        "findings" if len(all_findings) != 1 else all_findings[0].code,
        Group(*parts) if parts else "Nothing found.",
        find_command(all_findings, programs),
    )


def find_command(findings: Iterable[Finding], programs: Programs) -> str | None:
    """The command of the first finding that has one, as a person types it."""
    commands = (as_typed(command, programs) for finding in findings for command in finding.commands)
    return next(commands, None)


def _describe_finding(finding: Finding, programs: Programs) -> Iterable[RenderableType]:
    yield Text.assemble(
        (f" {finding.severity} ", f"reverse {words.SEVERITY_STYLE[finding.severity]}"),
        " ",
        (f"{finding.code} {finding.name}", "bold"),
        (f"  {words.score(finding)}", "dim"),
    )
    yield Text(words.clean(finding.summary))
    yield facts(finding, probes=True, programs=programs)


def describe_unseen(problems: Iterable[str], unseen: Iterable[str]) -> Content:
    """What hangdoc could not observe, and why."""
    lines = [*problems, *unseen]
    return Content("not observed", Text("\n\n".join(map(words.clean, lines)) or "Everything was observed."))


def describe_keys() -> Content:
    """All keys, by group."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", justify="right")
    table.add_column()
    for title, bindings in keys.groups():
        table.add_row("", Text(title, style="bold underline"))
        for binding in bindings:
            table.add_row(Text(keys.shown(binding)), Text(binding.tooltip))
    return Content(_KEYS, table)


class Question(ModalScreen[bool]):
    """Asks before a signal is sent to a process. Only y sends it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q,enter", "answer(False)", "no", key_display="n"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll(id="question") as box:
            box.border_subtitle = keys.hint(self.BINDINGS)
            yield Static(self._text, markup=False)

    def action_answer(self, yes: bool) -> None:
        """Close with this answer."""
        self.dismiss(yes)
