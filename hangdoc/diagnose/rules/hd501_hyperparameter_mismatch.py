"""Training arguments differ between ranks in a way that changes collectives.

## What it finds

An option of the command line, or a number of that name in the scripts' own variables, has different values on different
ranks, and is known to decide how many collectives a rank calls, which, or how large they are: gradient accumulation,
batch size, number of steps, intervals of evaluation, depth and widths, precision.

## Why it hangs

Ranks that accumulate over different numbers of micro-batches reduce their gradients a different number of times. One that
evaluates or saves at another step waits there while the others train. Different sizes end in a crash, or pair up without
a word.

## Evidence

The values, rank by rank, from command lines and from the variables of the running scripts, with what each decides.

## What to do

Give all nodes one command line, or one file of settings. Check it at the start: all_gather the settings and compare them.

## When it would be wrong

A script may take an option for something else than its name says, and may correct it later. Options that are meant to
differ (ranks, seeds, output folders) or only tune a rank are left out.

## References

- DistributedDataParallel, no_sync: https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

import re
from collections.abc import Iterator

from hangdoc.diagnose import amounts, progress, settings, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import integer
from hangdoc.snapshot import Interpreter

CODE = "HD501"
NAME = "hyperparameter-mismatch"
EXPLAINS = ("HD101", "HD102", "HD201", "HD202", "HD203", "HD206", "HD601")

_SETTINGS = re.compile(r"(?i)(^|\.|_)(args?|cfg|conf|config\w*|opts?|options|hparams|hyper\w*|flags|settings|params)$")
_ACCUMULATION = re.compile(r"(?i)accum\w*(_steps|_iters?|ulation)$")


def check(run: Run) -> Iterator[Finding]:
    """One finding for all arguments that differ and must agree."""
    ranks = [rank for rank in run.ranks.values() if rank.process is not None and rank.label != "dead"]
    given = {rank.rank: {**_variables(rank), **_options(rank)} for rank in ranks}
    different: list[tuple[str, settings.Setting, words.Camps]] = []
    for name in sorted({name for values in given.values() for name in values}):
        setting = settings.argument(name)
        if setting is None or setting.kind not in ("collectives", "numbers"):
            continue
        spoken = "option" if name in _all_options(ranks) else "variable"
        known = [rank for rank in ranks if spoken == "option" or name in given[rank.rank]]
        camps = words.by_value(known, {rank.rank: _plain(given[rank.rank].get(name)) for rank in known})
        if len(camps) > 1:
            different.append((name, setting, camps))
    different.sort(key=lambda entry: (entry[1].kind != "collectives", entry[0]))
    if different:
        yield _finding(run, different)


def _plain(value: str | None) -> str | None:
    """A path's last part: nodes may keep the same thing in different places."""
    return value.rstrip("/").rpartition("/")[2] if value is not None and "/" in value else value


def _options(rank: Rank) -> dict[str, str]:
    return settings.options(rank.process.argv) if rank.process is not None else {}


def _all_options(ranks: list[Rank]) -> set[str]:
    return {name for rank in ranks for name in _options(rank)}


def _variables(rank: Rank) -> dict[str, str]:
    """Settings among the whole numbers of the script's own frames and of its module."""
    found: dict[str, str] = {}
    own = progress.user_frames(rank.thread)
    scopes = [frame.locals for frame in own]
    counters = progress.counters_in(own)
    if rank.process is not None and isinstance(rank.process.interpreter, Interpreter):
        scopes.append(rank.process.interpreter.globals)
    for scope in scopes:
        for local in scope:
            if local.name not in counters and integer(local.text) is not None and _is_configuration(local.name):
                found.setdefault(local.name, local.text)
    return found


def _is_configuration(name: str) -> bool:
    """Whether a variable holds a setting, and not how far the work has come: an attribute of what people call their
    settings, or the length of an accumulation."""
    owner, dot, _ = name.rpartition(".")
    if dot:
        return bool(_SETTINGS.search(owner))
    return bool(_ACCUMULATION.search(name))


def _finding(run: Run, different: list[tuple[str, settings.Setting, words.Camps]]) -> Finding:
    name, setting, camps = different[0]
    decisive = setting.kind == "collectives"
    stuck = [rank.rank for rank in run.waiting() if not rank.moving]
    # Folders that visibly differ are a cause of their own.
    first, *others = (rank for rank in run.ranks.values() if rank.process is not None)
    alone = bool(stuck) and run.causes <= set(stuck) and not any(amounts.other_files(first, rank) for rank in others)
    more = [other for other, _, _ in different[1:]]
    return words.finding(
        CODE,
        NAME,
        severity="error" if decisive and alone else "warning" if decisive else "info",
        confidence=(0.92 if alone else 0.8) if decisive else 0.5,
        culprits=words.odd_ones(camps),
        victims=stuck,
        summary=f"`{name}` differs between ranks ({words.said(camps)}): it {setting.why}"
        + (f"; so do {', '.join(f'`{other}`' for other in more[:4])}" if more else ""),
        evidence=[
            *(
                Evidence(
                    rank=group[0], probe="arguments", text=f"{other}={value or 'not given'} ({words.ranks(group)})"
                )
                for other, _, values in different[:4]
                for value, group in values[:4]
            ),
            *words.class_evidence(run.waiting()),
        ],
        remedy="Start all nodes with the same arguments.",
    )
