"""What the commands that watch put on a page beside the diagnosis: the runs' details, and what each look before showed."""

import time
from typing import TYPE_CHECKING

from hangdoc.timeline import Recorder

if TYPE_CHECKING:
    from hangdoc.diagnosis import Diagnosis
    from hangdoc.snapshot import Snapshot


class Pages:
    """Makes pages, and remembers every look for their timelines."""

    def __init__(self, patience: float) -> None:
        """`patience` in seconds, as the looks are diagnosed with."""
        self._patience = patience
        self._recorders: dict[str, Recorder] = {}

    def saw(self, diagnosis: "Diagnosis") -> None:
        """Take in a look. A job that is gone is forgotten."""
        now = time.monotonic()
        self._recorders = {job.id: self._recorders.get(job.id) or Recorder() for job in diagnosis.jobs}
        for job in diagnosis.jobs:
            self._recorders[job.id].add(now, job)

    def page(self, snapshot: "Snapshot", diagnosis: "Diagnosis") -> str:
        """The page of a look, whose snapshot is examined once more: a diagnosis does not carry its runs."""
        from hangdoc.diagnose.detail import details
        from hangdoc.diagnose.engine import examine
        from hangdoc.render.html import page

        _, runs = examine(snapshot, patience=self._patience)
        timelines = {job: recorder.timeline() for job, recorder in self._recorders.items()}
        return page(diagnosis, details(diagnosis, runs), timelines)
