"""The ranks read different files under the same name; the run does not hang.

## What it finds

A run that is training while its ranks read directories with the same name or
setting but different files.

## Why it hangs

It does not hang. A loader that restarts at the end of its data never runs out.
A sampler that splits the list of files by rank then reads some samples twice
and others never, without any error. If the numbers of batches differ too, the
run hangs, and the finding is HD101.

## Example

```python
shards = Path("/scratch/data")  # <- a local disk: other files on every node
files = sorted(shards.glob("*.parquet"))
mine = files[rank::world_size]
```

## Use instead

```python
files = sorted(Path("/scratch/data").glob("*.parquet"))
known = [None] * dist.get_world_size()
dist.all_gather_object(known, [file.name for file in files])
if any(names != known[0] for names in known):
    raise RuntimeError("the nodes have different shards")
mine = files[rank::world_size]
```

If every node is meant to have its own part, split the files by local rank:
`files[local_rank::local_world_size]`.

## How hangdoc knows

For each rank it lists the directory, the setting that names it, the number of
files, and a digest of their names and sizes.

## When it can be wrong

The data is split over the nodes on purpose, and each rank reads its own part.
Directories whose path contains the rank's own number are not compared.

## References

- torch.utils.data.distributed.DistributedSampler:
  https://docs.pytorch.org/docs/stable/data.html
"""

import re
from collections.abc import Iterator

from hangdoc.phrases import amount
from hangdoc.reasoning.model.agreement import Agreement, compare_values
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks import amounts
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import words
from hangdoc.snapshot import DataSource


def check(run: Run) -> Iterator[Draft]:
    """One finding for the first setting that points to different data."""
    if any(rank.label != "computing" and not rank.moving for rank in run.ranks.values()):
        return
    sources = {rank.rank: amounts.list_sources(rank) for rank in run.ranks.values()}
    for origin in sorted({origin for mine in sources.values() for origin in mine}):
        mine = {rank: named[origin] for rank, named in sources.items() if origin in named}
        # A file that happens to be open is not a directory that a loader lists.
        if origin.startswith("open ") or any(source.files == 0 for source in mine.values()):
            continue
        values = compare_values({rank: source.digest for rank, source in mine.items()})
        if values.differs and not all(_own_part(run.ranks[rank], source) for rank, source in mine.items()):
            yield _draft(origin, values, mine)
            return


def _own_part(rank: Rank, source: DataSource) -> bool:
    return bool(re.search(rf"(?i)(rank|part|split|worker)[-_=]?0*{rank.rank}(?!\d)", source.path))


def _describe(source: DataSource) -> str:
    return f"{amount(source.files, 'file')}, {source.bytes} bytes, digest {source.digest[:12]}"


def _draft(origin: str, values: Agreement[str, int], mine: dict[int, DataSource]) -> Draft:
    shown = [(mine[ranks[0]], ranks) for _, ranks in values.values[:4]]
    same_number = len({source.files for source, _ in shown}) == 1
    listed = "; ".join(
        f"{amount(source.files, 'file')} in {source.path} on {words.ranks(ranks)}" for source, ranks in shown
    )
    lines = [
        Evidence(ranks[0], "data", f"{_describe(source)} in {source.path} ({origin}){words.also(ranks)}")
        for source, ranks in shown
    ]
    return Draft(
        confidence=0.7 if same_number else 0.6,
        culprits=values.odd,
        summary=f"{origin} points to different files on different ranks: {listed}"
        + (" (same number of files, different names or sizes)" if same_number else ""),
        evidence=lines,
        remedy="Compare the directories of the nodes and sync them. If each node is meant to have its own part, split the "
        "data by local rank.",
    )
