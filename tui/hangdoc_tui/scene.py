"""What a view is given: one poll, the job that is looked at, the rank that is selected, and what came before."""

from dataclasses import dataclass

from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Finding, Job, RankView
from hangdoc_tui.history import History
from hangdoc_tui.source import Poll


@dataclass(frozen=True)
class Scene:
    """Enough to paint any view."""

    poll: Poll
    job: Job
    run: Run
    selected: int | None
    history: History
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
