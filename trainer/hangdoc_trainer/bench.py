"""Measures what a second node gains: tokens per second for 1, 2 and 4 processes on one host, and for two hosts with a fast and a
slow link. Also compares the measured all-reduce with the rate of the link and with the prediction of `hangdoc preflight`.

python -m hangdoc_trainer.bench [--depth N] [--steps N]      (as root: the two hosts are network namespaces)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hangdoc_trainer import corpus
from hangdoc_trainer.offspring import Offspring, free_port

_SIZES = (
    "--aspect-ratio",
    "32",
    "--head-dim",
    "32",
    "--max-seq-len",
    "128",
    "--device-batch-size",
    "2",
    "--num-iterations",
    "9999",
)
_BOUND = 300


@dataclass(frozen=True)
class Setup:
    """One row of the table."""

    name: str
    processes: int
    hosts: int = 1
    mbit: float | None = None
    """The rate of the link; None for no limit."""


SETUPS = (
    Setup("1 process", 1),
    Setup("2 processes", 2),
    Setup("4 processes", 4),
    Setup("2 hosts, no limit on the link", 1, 2),
    Setup("2 hosts, 1 Gbit/s", 1, 2, 1000),
    Setup("2 hosts, like wireless (60 Mbit/s)", 1, 2, 60),
)


# --- one rank ------------------------------------------------------------------------------------------------------------


def rank(steps: int, out: Path, arguments: list[str]) -> None:
    """Time steps with and without synchronisation, and all-reduces of as many numbers as the model has. Rank 0 writes the
    results."""
    import torch
    import torch.distributed as dist

    from hangdoc_trainer.base_train import Trainer
    from hangdoc_trainer.base_train import arguments as parsed
    from hangdoc_trainer.data import loader
    from hangdoc_trainer.model import parameters

    trainer = Trainer(parsed(arguments))
    batches = loader(trainer.shards, 0)
    taken = [list(trainer.take(batches)) for _ in range(2 * steps + 3)]
    for batch in taken[:3]:
        trainer.step(batch)
    whole = _timed(lambda at: trainer.step(taken[3 + at]), steps)
    with trainer.model.no_sync():
        alone = _timed(lambda at: trainer.step(taken[3 + steps + at]), steps)
    gradients = torch.ones(parameters(trainer.plain))
    dist.all_reduce(gradients)
    reduce = _timed(lambda at: dist.all_reduce(gradients), max(3, steps // 4))
    mine = {
        "rank": trainer.rank, "step": whole, "alone": alone, "reduce": reduce, "parameters": parameters(trainer.plain),
        "tokens": trainer.args.device_batch_size * trainer.args.max_seq_len * trainer.world,
        "threads": torch.get_num_threads(), "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    all_ranks: list[Any] = [None] * trainer.world
    dist.all_gather_object(all_ranks, mine)
    if trainer.rank == 0:
        out.write_text(json.dumps(all_ranks))
    dist.destroy_process_group()


def _timed(action: Any, times: int) -> float:
    """Mean duration of `action` in seconds."""
    began = time.perf_counter()
    for at in range(times):
        action(at)
    return (time.perf_counter() - began) / times


# --- the hosts -----------------------------------------------------------------------------------------------------------


@contextmanager
def _hosts(mbit: float | None) -> Iterator[tuple[str, str]]:
    """Two network namespaces, connected with this rate in both directions. Yields their names."""
    names = tuple(f"hangdoc-{uuid.uuid4().hex[:6]}" for _ in range(2))
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for number, name in enumerate(names):
            _ip("-n", name, "addr", "add", f"10.98.7.{number + 1}/24", "dev", "eth0")
            for card in ("lo", "eth0"):
                _ip("-n", name, "link", "set", card, "up")
            if mbit is not None:
                limit = ("rate", f"{mbit:g}mbit", "burst", "256kb", "latency", "50ms")
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *limit], check=True)
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _run(setup: Setup, spaces: tuple[str, ...], folder: Path, depth: int, steps: int) -> list[dict[str, Any]]:
    """Run torchrun on every host, and return the measurements of the ranks. All processes are ended, also after an error."""
    offspring, out = Offspring(), folder / "measured.json"
    out.unlink(missing_ok=True)
    port = 29500 if spaces else free_port()
    master = "10.98.7.1" if spaces else "127.0.0.1"
    environment = {**os.environ, **offspring.mark, "OMP_NUM_THREADS": "1", "NANOCHAT_DATA_DIR": str(folder / "shards")}
    environment |= {"GLOO_SOCKET_IFNAME": "eth0" if spaces else "lo"}
    started = []
    try:
        for number in range(setup.hosts):
            command = [
                *(("ip", "netns", "exec", spaces[number]) if spaces else ()), sys.executable, "-m", "torch.distributed.run",
                "--nnodes", str(setup.hosts), "--nproc-per-node", str(setup.processes), "--node-rank", str(number),
                "--master-addr", master, "--master-port", str(port), "-m", "hangdoc_trainer.bench", "--rank", str(out),
                "--steps", str(steps), "--", "--depth", str(depth), *_SIZES,
            ]  # fmt: skip
            log = (folder / f"node{number}.log").open("w")
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
        until = time.monotonic() + _BOUND
        for child in started:
            child.wait(max(1.0, until - time.monotonic()))
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found
    except (subprocess.TimeoutExpired, FileNotFoundError):
        raise SystemExit(
            f"{setup.name} gave no result. The end of its log:\n{(folder / 'node0.log').read_text()[-2000:]}"
        ) from None
    finally:
        offspring.end()


def _predicted(spaces: tuple[str, ...], parameters: int) -> float | None:
    """Seconds that `hangdoc preflight` predicts for an all-reduce between the hosts."""
    hangdoc = str(Path(sys.executable).with_name("hangdoc"))
    done = subprocess.run(
        [hangdoc, "preflight", "--hosts", ",".join(spaces), "--via", "ip netns exec {host} env GLOO_SOCKET_IFNAME=eth0",
         "--remote-command", hangdoc, "--params", str(parameters), "--json"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    seconds: float | None = json.loads(done.stdout)["all_reduce_seconds"]
    return seconds


# --- the table -----------------------------------------------------------------------------------------------------------


def _line(setup: Setup, ranks: list[dict[str, Any]], predicted: float | None) -> str:
    step, reduce = max(one["step"] for one in ranks), max(one["reduce"] for one in ranks)
    slowest = max(ranks, key=lambda one: one["alone"])
    nodes = setup.hosts
    sent = 2 * ranks[0]["parameters"] * 4
    expected = sent * 8 / (setup.mbit * 1e6) * (nodes - 1) / nodes if setup.mbit else None
    waiting = max(0.0, step - slowest["alone"]) / step
    world = setup.processes * setup.hosts
    crowded = world * ranks[0]["threads"] > slowest["cores"]
    why = f"{world} ranks on {slowest['cores']} cores" if crowded else "most work, or busiest core"
    return (
        f"{setup.name:<34} {ranks[0]['tokens'] / step:>10,.0f} {step * 1000:>8.0f} {reduce * 1000:>9.1f} {_ms(expected):>9} "
        f"{_ms(predicted):>10} {waiting:>8.0%}  rank {slowest['rank']}: {slowest['alone'] * 1000:.0f} ms alone, {why}"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}"


def main() -> None:
    """Print the table or, if torchrun started it, run one rank of a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        rank(args.steps, args.rank, args.arguments)
        return
    print(
        f"{'':<34} {'tokens/s':>10} {'step ms':>8} {'reduce ms':>9} {'expected':>9} {'preflight':>10} {'waiting':>8}  "
        "slowest rank"
    )
    with tempfile.TemporaryDirectory(prefix="hangdoc-bench-") as name:
        folder = Path(name)
        corpus.make(folder / "shards", 40)
        for setup in SETUPS:
            if setup.hosts == 1:
                print(_line(setup, _run(setup, (), folder, args.depth, args.steps), None), flush=True)
                continue
            with _hosts(setup.mbit) as spaces:
                ranks = _run(setup, spaces, folder, args.depth, args.steps)
                print(_line(setup, ranks, _predicted(spaces, ranks[0]["parameters"])), flush=True)


if __name__ == "__main__":
    main()
