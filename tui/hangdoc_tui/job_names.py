"""What a job is called: by its script and launcher, as the person who started it would."""

from collections import Counter
from collections.abc import Iterable

from hangdoc.diagnose.model import Run
from hangdoc.diagnose.runs.launch import program
from hangdoc.render import words


def job_names(runs: Iterable[Run]) -> dict[str, str]:
    """By the ids of the runs: `base_train.py · torchrun · 2 ranks`, and where two would be called alike also where they meet."""
    names = {run.id: (_name(run), run.master or run.id) for run in runs}
    alike = Counter(name for name, _ in names.values())
    return {job: f"{name} · {words.clean(meeting)}" if alike[name] > 1 else name
            for job, (name, meeting) in names.items()}  # fmt: skip


def _name(run: Run) -> str:
    size = run.world_size
    ranks = f"{size:,} rank{'s' * (size != 1)}" if size is not None else None
    return words.clean(" · ".join(part for part in (_script(run), run.launcher, ranks) if part))


def _script(run: Run) -> str:
    """The script or module that the ranks run, else the one of their launcher (`mp.spawn` gives its children no command line)."""
    processes = [rank.process for rank in run.ranks.values() if rank.process is not None]
    processes += [process for _, process in run.launchers]
    name = next((name for process in processes if (name := program(process.argv))), "")
    if name.endswith(".py"):
        return name
    file = f"/{name.replace('.', '/')}.py"  # of a module; only a stack says whether it is not a package
    known = any(frame.file.endswith(file) for rank in run.ranks.values() for frame in rank.own)
    return file.rpartition("/")[2] if known else name
