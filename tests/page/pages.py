"""Pages to look at: of recorded runs, and of built ones for what nobody can record here."""

from pathlib import Path

import msgspec

from hangdoc import codec
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.views.detail import details
from hangdoc.render.html import page
from hangdoc.snapshot import Snapshot
from hangdoc.timeline import Recorder, Timeline
from tests.tui.sample_runs import CORPUS, thousand
from tests.unit.builders import backward, c10d, frame, local, rank, snapshot, train

EVIL = "<img src=x onerror=alert(1)>"
PATIENCE = 2.0


def page_of(evidence: Snapshot, timelines: dict[str, Timeline] | None = None) -> str:
    """As the commands make it."""
    diagnosis, runs = examine(evidence, patience=PATIENCE)
    return page(diagnosis, details(diagnosis, runs), timelines)


def recorded(name: str) -> Snapshot:
    """A run of the corpus."""
    return codec.read(CORPUS / f"{name}.hangdoc")


def waiting(world: int) -> Snapshot:
    """All ranks wait in their backward for the last one, which reads its data."""
    if world == 1024:
        return thousand()
    last = rank(world - 1, frame("read_table", 9, "/home/me/data.py", source="table = read(path)"),
                train(12, locals=(local("step", 40),)), world=world)  # fmt: skip
    others = [
        rank(n, *c10d("all_reduce"), *backward(), train(15, locals=(local("step", 41),)), world=world)
        for n in range(world - 1)
    ]
    return snapshot(*others, last)


def evil() -> Snapshot:
    """Two ranks on a host, in a file, a function and with a variable of a name that is markup."""
    bad = {"file": f"/home/{EVIL}/{EVIL}.py", "source": EVIL}
    stopped = rank(0, frame(EVIL, 5, **bad), state="T", environment={"NOTE": EVIL, EVIL: "1"})
    waits = rank(1, *c10d("all_reduce"), frame("main", 9, **bad), argv=("python3", f"{EVIL}.py", f"--{EVIL}", EVIL))
    (host,) = snapshot(stopped, waits, problems=(EVIL, "\x1b[31m\u202e</script><script>alert(2)</script>")).hosts
    return Snapshot(hangdoc=EVIL, hosts=(msgspec.structs.replace(host, name=EVIL),))


def timeline_of(evidence: Snapshot, polls: int = 40, froze_at: int = 25) -> dict[str, Timeline]:
    """As if somebody had watched the run from before it froze."""
    diagnosis, _ = examine(evidence, patience=PATIENCE)
    found = {}
    for job in diagnosis.jobs:
        recorder = Recorder()
        for poll in range(polls):
            ranks = tuple(
                msgspec.structs.replace(
                    view, label="computing", state="computing" if (poll + view.rank) % 4 else "loading-data"
                )
                if poll < froze_at
                else view
                for view in job.ranks
            )
            recorder.add(float(poll), msgspec.structs.replace(job, ranks=ranks))
        found[job.id] = recorder.timeline()
    return found


def write(folder: Path, name: str, text: str) -> Path:
    """A page as a file."""
    path = folder / f"{name}.html"
    path.write_text(text)
    return path
