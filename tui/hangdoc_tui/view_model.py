"""What a view draws: one poll, the shown job, the selected rank, and the history."""

from dataclasses import dataclass

from textual.message import Message

from hangdoc.diagnosis import Finding, Job, RankView
from hangdoc.reasoning.model.run import Run
from hangdoc_tui.history import History
from hangdoc_tui.rates import Rate
from hangdoc_tui.source import Poll


class RankChosen(Message):
    """A person chose a rank in a view. `entered`: they also asked for its stack."""

    def __init__(self, rank: int, entered: bool) -> None:
        self.rank, self.entered = rank, entered
        super().__init__()


@dataclass(frozen=True)
class ViewModel:
    """What any view needs to draw itself."""

    poll: Poll
    job: Job
    run: Run
    selected: int | None
    history: History
    name: str = ""
    """What the job is called (hangdoc.render.words.job_names)."""
    before: Run | None = None
    """The same job at the previous poll."""
    is_over: bool = False
    """Whether none of its ranks is left: the poll is the last one that has seen any."""

    @property
    def moment(self) -> str:
        """What the moment of the poll is called, from which all ages count: `now`, or its time if the run is over."""
        return f"{self.poll.at:%H:%M:%S}" if self.is_over else "now"

    @property
    def leading(self) -> Finding | None:
        """The first finding."""
        return self.job.findings[0] if self.job.findings else None

    @property
    def culprits(self) -> tuple[int, ...]:
        """The culprits of the first finding."""
        return self.leading.culprits if self.leading is not None else ()

    def view(self, rank: int | None) -> RankView | None:
        """A rank of the diagnosis; None if it has no such rank."""
        return next((view for view in self.job.ranks if view.rank == rank), None)

    def batch_rate(self, view: RankView) -> Rate | None:
        """The batches per second of a rank."""
        track = self.history.tracks.get(view.rank)
        return track.find_batch_rate() if track is not None and view.batches_done is not None else None

    def memory(self, view: RankView) -> int | None:
        """The resident memory of a rank, without its helpers, in bytes."""
        rank = self.run.ranks.get(view.rank)
        return rank.process.resident_bytes if rank is not None and rank.process is not None else None


def gibibytes(size: int) -> str:
    """`1.3G`, as in top(1)."""
    return f"{size / (1 << 30):.1f}G"
