"""Numbers computed from launch lines: world size, model, tokens and accumulation. Pure."""

from collections.abc import Iterator

from hangdoc import settings
from hangdoc.launch import launchers
from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.sizes import are_separate, contradict, find_decider, needs_cards, size_of, world_size
from hangdoc.parse import natural
from hangdoc.phrases import amount
from hangdoc.regex import regex

_NANOCHAT = regex(r"(-m )?(.*/)?scripts[./](base_train|mid_train|chat_sft|chat_rl)(\.py)?")
"""nanochat's programs that train."""
_ASPECT_RATIO, _HEAD_DIM, _SEQUENCE = 64, 128, 2048
"""Their defaults, for arguments that the line does not give."""
_BATCH = ("device_batch_size", "micro_batch_size", "per_device_train_batch_size", "batch_size")
_LENGTH = ("max_seq_len", "seq_len", "sequence_length", "block_size")


def derived(lines: list[LaunchLine]) -> list[tuple[str, str]]:
    """(name, value) of each number that the lines determine."""
    if are_separate(lines):
        return [("world size", _describe_separate(lines))]
    nanochat = all(_NANOCHAT.fullmatch(line.launched.program) for line in lines)
    return [*_derive_world(lines), *(_derive_model(lines) if nanochat else ()), *_derive_tokens(lines, nanochat)]


def _describe_separate(lines: list[LaunchLine]) -> str:
    sizes = [size_of(line).ranks for line in lines]
    shown = " and ".join("an unknown number" if size is None else amount(size, "rank") for size in dict.fromkeys(sizes))
    each = " each" if len(set(sizes)) == 1 else ""
    once = all(launchers.starts_once(line.launched.tool, line.launched.options) for line in lines)
    why = launchers.STARTED_ONCE if once else "no line says that it is one of several nodes"
    return f"{len(lines)} separate runs of {shown}{each}, because {why}"


def _derive_world(lines: list[LaunchLine]) -> Iterator[tuple[str, str]]:
    world = world_size(lines)
    if world is None:
        yield "world size", _explain_undetermined(lines)
        return
    parts = [size_of(line).ranks_per_node for line in lines]
    sums = f" ({' + '.join(map(str, parts))})" if len(lines) > 1 and sum(part or 0 for part in parts) == world else ""
    note = (
        ", if a node has several cards or accelerate's configuration file asks for them"
        if any(map(needs_cards, lines))
        else ""
    )
    yield "world size", f"{amount(world, 'rank')}{sums}{note}"


def _explain_undetermined(lines: list[LaunchLine]) -> str:
    if contradict(lines):
        sizes = dict.fromkeys(amount(size_of(line).ranks or 0, "rank") for line in lines)
        return f"the lines contradict each other: {' and '.join(sizes)}"
    deciders = dict.fromkeys(decider for line in lines if (decider := find_decider(line)) is not None)
    why = f"they leave it to {', and to '.join(deciders)}" if deciders else "the nodes differ, and some have no line"
    return f"the lines do not determine it: {why}"


def _read_number(lines: list[LaunchLine], *names: str) -> int | None:
    """The first of these arguments that a line has, if it is the same in all lines."""
    numbers = set()
    for line in lines:
        options = settings.options(("", *(word for word in line.launched.arguments if word != "--")))
        plain = {name.replace("-", "_"): value for name, value in options.items()}
        numbers.add(next((number for name in names if (number := natural(plain.get(name))) is not None), None))
    return numbers.pop() if len(numbers) == 1 else None


def _derive_model(lines: list[LaunchLine]) -> Iterator[tuple[str, str]]:
    depth = _read_number(lines, "depth")
    if depth is None:
        return
    aspect, head = _read_number(lines, "aspect_ratio"), _read_number(lines, "head_dim")
    dim = depth * (aspect or _ASPECT_RATIO)
    heads = max(1, -(-dim // (head or _HEAD_DIM)))
    assumed = [
        f"{name} {value}, nanochat's default"
        for name, value, argument in (("aspect ratio", _ASPECT_RATIO, aspect), ("head dim", _HEAD_DIM, head))
        if argument is None
    ]
    note = f" ({'; '.join(assumed)})" if assumed else ""
    yield "model", f"depth {depth}: dim {dim}, {amount(heads, 'head')}{note}"


def _derive_tokens(lines: list[LaunchLine], nanochat: bool) -> Iterator[tuple[str, str]]:
    batch, given = _read_number(lines, *_BATCH), _read_number(lines, *_LENGTH)
    sequence = _SEQUENCE if given is None and nanochat else given
    world = world_size(lines)
    if batch is None or world is None:
        return
    if sequence is None:
        yield "samples per micro-step", f"{batch} × {amount(world, 'rank')} = {batch * world:,}"
        return
    assumed = "" if given is not None else f" (sequence length {_SEQUENCE}, nanochat's default)"
    micro = batch * sequence * world
    yield "tokens per micro-step", f"{batch} × {sequence} × {amount(world, 'rank')} = {micro:,}{assumed}"
    total = _read_number(lines, "total_batch_size") if nanochat else None  # elsewhere it may count samples
    if total is None or total <= 0:
        return
    if total % micro:
        yield (
            "accumulation",
            f"{total:,} / {micro:,} is not an integer: the script stops, or the ranks make different numbers of micro-steps",
        )
    else:
        yield "accumulation", f"{total:,} / {micro:,} = {amount(total // micro, 'micro-step')} per step"
