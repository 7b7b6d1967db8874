"""Numbers computed from launch lines: world size, model, tokens and accumulation. Pure."""

from collections.abc import Iterator

from hangdoc import settings
from hangdoc.launch.layers import LaunchLine
from hangdoc.parse import natural

_ASPECT_RATIO, _HEAD_DIM, _SEQUENCE = 64, 128, 2048
"""nanochat's defaults, for arguments that the line does not give."""


def derived(lines: list[LaunchLine]) -> list[tuple[str, str]]:
    """(name, value) of each number that the lines determine."""
    return [*_derive_world(lines), *_derive_model(lines[0]), *_derive_tokens(lines)]


def world_size(lines: list[LaunchLine]) -> int | None:
    """Number of ranks of the run; None if the lines do not determine it."""
    first = lines[0].launched.options
    if "num-processes" in first:
        return natural(first["num-processes"])
    per_node = [natural(line.launched.options.get("nproc-per-node", "1")) for line in lines]
    nodes = natural((first.get("nnodes") or "1").partition(":")[0])
    if nodes is None or None in per_node:
        return None
    counts = [count for count in per_node if count is not None]
    return sum(counts) if len(lines) == nodes else nodes * counts[0]


def _derive_world(lines: list[LaunchLine]) -> Iterator[tuple[str, str]]:
    world = world_size(lines)
    if world is None:
        yield "world size", "depends on the nodes (--nproc-per-node is not a number)"
        return
    parts = " + ".join(line.launched.options.get("nproc-per-node", "1") for line in lines)
    yield "world size", f"{world} ranks" + (f" ({parts})" if len(lines) > 1 else "")


def _read_number(line: LaunchLine, *names: str) -> int | None:
    options = settings.options(("", *(word for word in line.launched.arguments if word != "--")))
    plain = {name.replace("-", "_"): value for name, value in options.items()}
    return next((number for name in names if (number := natural(plain.get(name))) is not None), None)


def _derive_model(line: LaunchLine) -> Iterator[tuple[str, str]]:
    depth = _read_number(line, "depth")
    if depth is None:
        return
    aspect, head = _read_number(line, "aspect_ratio"), _read_number(line, "head_dim")
    dim = depth * (aspect or _ASPECT_RATIO)
    heads = max(1, -(-dim // (head or _HEAD_DIM)))
    assumed = [
        f"{name} {value}, nanochat's default"
        for name, value, argument in (("aspect ratio", _ASPECT_RATIO, aspect), ("head dim", _HEAD_DIM, head))
        if argument is None
    ]
    note = f" ({'; '.join(assumed)})" if assumed else ""
    yield "model", f"depth {depth}: dim {dim}, {heads} heads{note}"


def _derive_tokens(lines: list[LaunchLine]) -> Iterator[tuple[str, str]]:
    batch = _read_number(lines[0], "device_batch_size", "micro_batch_size", "per_device_train_batch_size", "batch_size")
    sequence = _read_number(lines[0], "max_seq_len", "seq_len", "sequence_length", "block_size")
    world = world_size(lines)
    if batch is None or world is None:
        return
    assumed = "" if sequence is not None else f" (sequence length {_SEQUENCE}, nanochat's default)"
    micro = batch * (sequence or _SEQUENCE) * world
    yield "tokens per micro-step", f"{batch} × {sequence or _SEQUENCE} × {world} ranks = {micro:,}{assumed}"
    total = _read_number(lines[0], "total_batch_size")
    if total is None or total <= 0:
        return
    if total % micro:
        yield (
            "accumulation",
            f"{total:,} / {micro:,} is not an integer: the script stops, or the ranks make different numbers of micro-steps",
        )
    else:
        yield "accumulation", f"{total:,} / {micro:,} = {total // micro} micro-steps per step"
