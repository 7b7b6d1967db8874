"""Same batch count, different files: no hang, silent divergence.

## What it finds

A run that trains while its ranks read folders of one name or setting that hold different files.

## Why it hangs

It does not. A loader that starts over at the end of its data never runs out, and a sampler that splits the list of files
by rank takes other samples than the author meant: some data is seen twice, some never, and nobody is told. With other
counts the same cause is HD101.

## Evidence

For each rank the folder, where its name comes from, the number of files and a digest of their names and sizes.

## What to do

Compare the folders (`ls | sha256sum` on each node) and synchronise them; or, if each node is meant to have its own part,
let the sampler know it: split by local rank, not by global rank.

## When it would be wrong

Where the data is split over the nodes on purpose and each rank reads its own part. Folders whose path holds the rank's own
number are taken for such.

## References

- torch.utils.data.distributed.DistributedSampler: https://docs.pytorch.org/docs/stable/data.html
"""

import re
from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.causes import amounts
from hangdoc.diagnose.causes.agreement import Agreement, agreement
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import DataSource

CODE = "HD104"
NAME = "different-data"


def check(run: Run) -> Iterator[Finding]:
    """One finding for the first setting that points to different data."""
    if any(rank.label != "computing" and not rank.moving for rank in run.ranks.values()):
        return
    sources = {rank.rank: amounts.sources(rank) for rank in run.ranks.values()}
    for origin in sorted({origin for mine in sources.values() for origin in mine}):
        ranks = [rank for rank in run.ranks.values() if origin in sources[rank.rank]]
        mine = {rank.rank: sources[rank.rank][origin] for rank in ranks}
        if len(ranks) < 2 or not _is_setting(origin) or any(source.files == 0 for source in mine.values()):
            continue
        values = agreement({rank: source.digest for rank, source in mine.items()})
        if values.differs and not all(_own_part(rank, mine[rank.rank]) for rank in ranks):
            yield _finding(origin, values, mine)
            return


def _is_setting(origin: str) -> bool:
    """Whether a path was given as a setting. A file that happens to be open is not a directory that a loader lists."""
    return not origin.startswith("open ")


def _own_part(rank: Rank, source: DataSource) -> bool:
    return bool(re.search(rf"(?i)(rank|part|split|worker)[-_=]?0*{rank.rank}(?!\d)", source.path))


def _finding(origin: str, values: Agreement[str, int], mine: dict[int, DataSource]) -> Finding:
    first = [mine[group[0]] for _, group in values.values[:4]]
    return words.finding(
        CODE,
        NAME,
        severity="warning",
        confidence=0.7 if len({source.files for source in first}) == 1 else 0.6,
        culprits=values.odd,
        victims=(),
        summary=f"{origin} points to different files on different ranks: "
        + "; ".join(
            f"{source.files} files in {source.path} on {words.ranks(group)}"
            for source, (_, group) in zip(first, values.values, strict=False)
        )
        + (" (same number of files, different names or sizes)" if len({source.files for source in first}) == 1 else ""),
        evidence=[
            Evidence(
                rank=group[0],
                probe="data",
                text=f"{source.files} files, {source.bytes} bytes, digest {source.digest[:12]} in {source.path} ({origin})"
                + words.also(group),
            )
            for source, (_, group) in zip(first, values.values, strict=False)
        ],
        remedy="Compare the directories of the nodes and sync them. If each node is meant to have its own part, split the "
        "data by local rank.",
    )
