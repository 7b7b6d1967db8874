"""What a person calls a run and its ranks: by the titles of their processes, and by the command line of their server."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hangdoc.parse import natural, was_removed
from hangdoc.phrases import amount
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs import launch
from hangdoc.regex import regex
from hangdoc.snapshot import Process
from hangdoc.torch_facts import serving

_TITLE = regex(
    r"(?P<system>\w{1,20})::(?P<part>[A-Za-z_]\w{0,80}?)(?P<places>(?:_[A-Z][A-Z_]{0,14}\d{1,5}){0,12})(?:\.[\w.()]{1,100})?"
)
_PLACE = regex(r"_([A-Z][A-Z_]{0,14}?)(\d{1,5})")
_RAY_JOB = regex(r"(?!f{8})[0-9a-f]{8}")
"""All bits are set in a worker that was started before the job: it has no job then."""
_LONGEST = 40


class Title(NamedTuple):
    """The name that a process has given itself."""

    system: str
    part: str
    """What the process is in it: `Worker`, `EngineCore`, `scheduler`; of an actor its class."""
    places: tuple[tuple[str, int], ...]
    """Its number in each dimension: `TP`, 1."""

    @property
    def is_actor(self) -> bool:
        """Whether the part is the class of an actor. Of a task, Ray writes the name of the function."""
        return self.system == serving.RAY and self.part.lstrip("_")[:1].isupper()


def read_title(process: Process | None) -> Title | None:
    """The title of a process of a known system; None for any other."""
    match = _TITLE.fullmatch(process.argv[0]) if process is not None and len(process.argv) == 1 else None
    if match is None or match["system"] not in serving.TITLES:
        return None
    places = tuple((name, int(number)) for name, number in _PLACE.findall(match["places"]))
    return Title(serving.TITLES[match["system"]], match["part"], places)


def find_role(run: Run, rank: Rank) -> str | None:
    """What a rank is in its system: `PP 1, TP 0`, `actor 3`, `EngineCore`; None if its title does not say it."""
    title = read_title(rank.process)
    if title is None or title.system == serving.RAY:
        return f"actor {rank.rank}" if title is not None and title.is_actor else None
    if title.places:
        return ", ".join(f"{name} {number}" for name, number in title.places)
    owner = rank.process.owner if rank.process is not None else None
    engine = next((read_title(process) for _, process in run.launchers if process.pid == owner), None)
    return f"{engine.part}'s worker" if engine is not None and title.part == serving.WORKER else title.part


def name_run(run: Run) -> str | None:
    """`train.py · torchrun · 2 ranks`, `vLLM · Qwen2.5-0.5B · tp 2`, `verl · Ray job 01000000 · 2 actors`; None if nothing is
    known."""
    titles = [title for rank in run.ranks.values() if (title := read_title(rank.process)) is not None]
    if titles and titles[0].is_actor:
        parts = _name_actors(run, titles[0])
    elif titles and titles[0].system != serving.RAY:
        parts = _name_engine(run, titles)
    else:
        parts = [launch.script(run), run.launcher, _count(run, "rank")]
    return " · ".join(part for part in parts if part) or None


def _count(run: Run, what: str) -> str | None:
    size = run.world_size
    return amount(size, what) if size is not None else None


def _name_actors(run: Run, title: Title) -> list[str | None]:
    environments = [observed.environment(rank.process) for rank in run.ranks.values() if rank.process is not None]
    variables = next(iter(environments), {})
    framework = next((name for variable, name in serving.FRAMEWORK_VARIABLES.items() if variable in variables), None)
    program = launch.script(run) if title.part in serving.RAY_TRAIN_ACTORS else title.part
    jobs = (environment.get(serving.RAY_JOB, "") for environment in environments)
    job = next(filter(_RAY_JOB.fullmatch, jobs), None)
    return [framework or program, f"Ray job {job}" if job is not None else "Ray", _count(run, "actor")]


def _name_engine(run: Run, titles: Sequence[Title]) -> list[str | None]:
    lines = [line for _, process in run.launchers for line in (process.argv, process.parent_argv) if len(line) > 1]
    counted = dict.fromkeys(name for title in titles for name, _ in title.places)
    sizes = {name: size for name, options in serving.SIZE_OPTIONS.items() if (size := _find_size(lines, options))}
    if run.world_size == len(titles):
        sizes |= {name: 1 + max(dict(title.places).get(name, 0) for title in titles) for name in counted}
    parts: list[str | None] = [titles[0].system, _find_model(lines)]
    engines = [engine for _, process in run.launchers if (engine := read_title(process)) is not None]
    for name, number in {place: None for engine in engines for place in engine.places}:
        if name not in counted:  # the run is that of one engine of several
            size = sizes.pop(name, None)
            parts.append(f"{name} {number}" if size is None else f"{name} {number} of {size}")
    shown = [f"{name.lower()} {size}" for name, size in sizes.items() if size > 1 or name in counted]
    return [*parts, *shown] if shown else [*parts, _count(run, "rank")]


def _find_size(lines: Iterable[tuple[str, ...]], options: Sequence[str]) -> int | None:
    return next((size for line in lines if (size := natural(next(_values(line, options), None)))), None)


def _find_model(lines: Sequence[tuple[str, ...]]) -> str | None:
    """The model that a server serves, without its directory; else the script that has started the engine."""
    for line in lines:
        named = (value for option in serving.MODEL_OPTIONS for value in _values(line, (option,)))
        served = (after for word, after in pairwise(line) if word == serving.SERVE and not after.startswith("-"))
        for value in (*named, *served):
            parts = [part for part in value.split("/") if part]
            cached = next((part for part in parts if part.startswith(serving.CACHED_MODEL)), None)
            name = cached.rpartition("--")[2] if cached is not None else parts[-1] if parts else ""
            if name and not was_removed(name):
                return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return next((script for line in lines if (script := launch.program(line)).endswith(".py")), None)


def _values(line: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """The values of an option with one of these names."""
    for word, after in pairwise((*line, "")):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name.lstrip("-").replace("_", "-") in options:
            yield value if equals else after
