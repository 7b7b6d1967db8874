"""What `watch` and `run` add to the page of a diagnosis: details of the runs, and a timeline of all looks."""

import time
from typing import TYPE_CHECKING

from hangdoc.timeline import Recorder

if TYPE_CHECKING:
    from hangdoc.diagnosis import Diagnosis
    from hangdoc.snapshot import Snapshot


class Pages:
    """Makes pages, and stores every look for their timelines."""

    def __init__(self, patience: float) -> None:
        """`patience` in seconds, as for the diagnoses."""
        self._patience = patience
        self._recorders: dict[str, Recorder] = {}

    def add(self, snapshot: "Snapshot", diagnosis: "Diagnosis") -> None:
        """Add a look. Jobs that are gone are removed. The timeline of a new job begins with what its ranks recorded earlier."""
        now = time.monotonic() - _seconds_ago(snapshot, diagnosis)
        new = {job.id for job in diagnosis.jobs} - self._recorders.keys()
        self._recorders = {job.id: self._recorders.get(job.id) or Recorder() for job in diagnosis.jobs}
        if new:
            from hangdoc.reasoning.engine import examine
            from hangdoc.reasoning.views.past import past_cells

            for run in examine(snapshot, patience=self._patience)[1]:
                past = past_cells(run) if run.id in new else None
                if past is not None:
                    self._recorders[run.id].begin(now, past)
        for job in diagnosis.jobs:
            self._recorders[job.id].add(now, job)

    def page(self, snapshot: "Snapshot", diagnosis: "Diagnosis") -> str:
        """The page of a look. Examines its snapshot again, because a diagnosis does not contain its runs."""
        from hangdoc.reasoning.engine import examine
        from hangdoc.reasoning.views.detail import details
        from hangdoc.render.html import page

        _, runs = examine(snapshot, patience=self._patience)
        timelines = {job: recorder.timeline() for job, recorder in self._recorders.items()}
        return page(diagnosis, details(diagnosis, runs), timelines)


def _seconds_ago(snapshot: "Snapshot", diagnosis: "Diagnosis") -> float:
    """How long ago the window of a look ended, at which its ages count: stacks are read after it, which takes seconds. The clock
    of another host may be behind, but the look took no longer than it says."""
    ended = [host.wall_us for host in snapshot.hosts if host.wall_us is not None]
    ago = time.time() - max(ended) / 1e6 if ended else 0.0
    return min(max(0.0, ago), diagnosis.elapsed_seconds)
