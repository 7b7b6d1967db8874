"""What a view is given: one poll, the job that is looked at, the rank that is selected, and what came before."""

from dataclasses import dataclass

from textual.message import Message

from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Finding, Job, RankView
from hangdoc_tui.history import History
from hangdoc_tui.source import Poll


class RankChosen(Message):
    """A person chose a rank in a view; `entered` is True where they ask for more about it."""

    def __init__(self, rank: int, entered: bool) -> None:
        self.rank, self.entered = rank, entered
        super().__init__()


@dataclass(frozen=True)
class Scene:
    """Enough to paint any view."""

    poll: Poll
    job: Job
    run: Run
    selected: int | None
    history: History
    name: str = ""
    """What the job is called (hangdoc_tui.job_names)."""
    before: Run | None = None
    """The same job at the poll before."""

    @property
    def leading(self) -> Finding | None:
        """The finding that explains most."""
        return self.job.findings[0] if self.job.findings else None

    @property
    def culprits(self) -> tuple[int, ...]:
        """Whom the leading finding blames."""
        return self.leading.culprits if self.leading is not None else ()

    def view(self, rank: int | None) -> RankView | None:
        """A rank as the diagnosis has it."""
        return next((view for view in self.job.ranks if view.rank == rank), None)
