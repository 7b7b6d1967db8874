"""Turns parquet shards into batches of bytes.

The last shard is for evaluation, all others are for training. Each rank, or each of its workers, reads every n-th row group of
every shard. One token is one byte; a document starts with token 256.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from hangdoc_trainer.corpus import GROUP_BYTES

BEGIN = 256


def data_directory() -> Path:
    """NANOCHAT_DATA_DIR, else base_data below NANOCHAT_BASE_DIR, else below ~/.cache/nanochat."""
    given = os.environ.get("NANOCHAT_DATA_DIR")
    base = os.environ.get("NANOCHAT_BASE_DIR", "~/.cache/nanochat")
    return Path(given or Path(base) / "base_data").expanduser()


def list_shards(folder: Path) -> tuple[list[Path], list[Path]]:
    """(training shards, evaluation shards)."""
    paths = sorted(folder.glob("*.parquet"))
    return paths[:-1], paths[-1:]


def digest(paths: list[Path]) -> str:
    """A digest that is equal for equal lists of file names."""
    return hashlib.sha256("\n".join(path.name for path in paths).encode()).hexdigest()[:16]


class Shards(IterableDataset[tuple[Tensor, Tensor]]):
    """Batches of (inputs, targets) of one rank, each of shape (batch, time), for one epoch or forever."""

    def __init__(self, paths: list[Path], rank: int, world: int, batch: int, time: int, cycle: bool) -> None:
        self.paths, self.rank, self.world = paths, rank, world
        self.batch, self.time, self.cycle = batch, time, cycle

    def documents(self) -> Iterator[str]:
        """The texts of this rank's row groups, one epoch after another if `cycle`."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        epoch = 0
        while True:
            for path in self.paths:
                file = pq.ParquetFile(path)
                for group in range(self.rank + worker * self.world, file.num_row_groups, self.world * workers):
                    yield from file.read_row_group(group, columns=["text"]).column("text").to_pylist()
            epoch += 1
            if not self.cycle:
                return

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches, without an incomplete last one."""
        need = self.batch * self.time
        buffer: list[int] = []
        for text in self.documents():
            buffer.append(BEGIN)
            buffer.extend(text.encode())
            while len(buffer) > need:
                tokens = torch.tensor(buffer[: need + 1], dtype=torch.int64)
                del buffer[:need]
                yield tokens[:-1].view(self.batch, self.time), tokens[1:].view(self.batch, self.time)

    def count(self) -> int | None:
        """Number of batches in one epoch without workers; None if the shards lack the metadata."""
        tokens = 0
        for path in self.paths:
            if not stat.S_ISREG(path.stat().st_mode):
                return None
            file = pq.ParquetFile(path)
            sizes = (file.schema_arrow.metadata or {}).get(GROUP_BYTES)
            if sizes is None:
                return None
            by_group = json.loads(sizes)
            for group in range(self.rank, file.num_row_groups, self.world):
                tokens += by_group[group] + file.metadata.row_group(group).num_rows
        return max(0, tokens - 1) // (self.batch * self.time)


def loader(shards: Shards, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches, from worker processes if `workers` is not 0."""
    if workers == 0:
        return iter(shards)
    return iter(DataLoader(shards, batch_size=None, num_workers=workers, prefetch_factor=2))
