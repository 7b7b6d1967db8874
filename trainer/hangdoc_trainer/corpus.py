"""Makes a corpus of N parquet shards from the source of the Python standard library, which every machine has.

python -m hangdoc_trainer.corpus DIRECTORY --shards 201
"""

import argparse
import itertools
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_BYTES = b"hangdoc.text_bytes_by_row_group"
"""File metadata that this command writes. Without it, the number of batches is not known in advance."""


def documents(size: int = 2_000) -> Iterator[str]:
    """Endless pieces of about `size` characters, in a fixed order."""
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    for path in itertools.cycle(sources):
        text = path.read_text("utf-8", "replace")
        for start in range(0, len(text), size):
            yield text[start : start + size]


def make(folder: Path, shards: int, groups: int = 4, rows: int = 2, size: int = 2_000) -> None:
    """Write `shards` files of `groups` row groups of `rows` documents each."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = documents(size)
    for index in range(shards):
        content = [list(itertools.islice(texts, rows)) for _ in range(groups)]
        sizes = [sum(len(text.encode()) for text in group) for group in content]
        schema = pa.schema([("text", pa.string())], metadata={GROUP_BYTES: json.dumps(sizes).encode()})
        with pq.ParquetWriter(folder / f"shard_{index:05d}.parquet", schema) as writer:
            for group in content:
                writer.write_table(pa.table({"text": group}, schema=schema))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--row-groups", type=int, default=4, help="per shard; at least as many as ranks")
    parser.add_argument("--rows", type=int, default=2, help="documents per row group")
    parser.add_argument("--size", type=int, default=2_000, help="characters per document")
    arguments = parser.parse_args()
    make(arguments.directory, arguments.shards, arguments.row_groups, arguments.rows, arguments.size)
    print(f"{arguments.shards} shards in {arguments.directory}")


if __name__ == "__main__":
    main()
