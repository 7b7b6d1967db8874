"""A small nanochat-style pretrainer:

torchrun --nproc-per-node 2 -m hangdoc_trainer.base_train -- --depth 4 --num-iterations 100
"""

import argparse
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hangdoc.beacon import Beacon
from hangdoc.watchdog import Watchdog
from hangdoc_trainer import checkpoint, faults
from hangdoc_trainer.data import BEGIN, Shards, data_directory, digest, list_shards, loader
from hangdoc_trainer.model import GPT, Shape, parameters

Batch = tuple[Tensor, Tensor]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line. A leading `--`, which torchrun passes on, is ignored."""
    import sys

    words = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--run", default="dummy", help="name of the run")
    add("--tracker", choices=["none"], default="none")
    add("--device-type", choices=["", "cpu", "cuda"], default="")
    add("--depth", type=int, default=4)
    add("--aspect-ratio", type=int, default=64, help="model dim = depth x aspect ratio")
    add("--head-dim", type=int, default=64)
    add("--max-seq-len", type=int, default=256)
    add("--device-batch-size", type=int, default=4)
    add(
        "--total-batch-size",
        type=int,
        default=-1,
        help="tokens per step over all ranks; -1: one micro-batch per rank",
    )
    add("--num-iterations", type=int, default=-1, help="steps; -1: one epoch of the data")
    add(
        "--step-seconds",
        type=float,
        default=0.0,
        help="minimum duration of a step; the rank sleeps for the rest",
    )
    add("--learning-rate", type=float, default=3e-3)
    add("--eval-every", type=int, default=0)
    add("--eval-tokens", type=int, default=4096)
    add("--core-metric-every", type=int, default=0, help="steps between two metrics that rank 0 computes alone")
    add("--core-metric-tokens", type=int, default=8192)
    add("--sample-every", type=int, default=0)
    add("--save-every", type=int, default=0)
    add("--checkpoint-dir", type=Path, default=None)
    add("--resume", action="store_true")
    add("--workers", type=int, default=0, help="dataloader processes per rank")
    add("--log-every", type=int, default=1)
    add(
        "--phase-patience",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="timeout of the watchdog during an evaluation",
    )
    add("--watchdog", type=_seconds, default=0.0, metavar="SECONDS|auto")
    add("--on-hang", choices=("report", "raise", "abort"), default="report")
    add("--fault", type=faults.Fault.parse, default=None, metavar="NAME[:rank[:step]]")
    return parser.parse_args(words[1:] if words[:1] == ["--"] else words)


def _own_store() -> Any:
    """A separate prefix of the store for a run that torchrun restarted: with the old prefix, Gloo (torch 2.13) would find the
    addresses of dead ranks. None for a first start, which uses the default store."""
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restart == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    torch_distributed: Any = dist  # mypy does not know its stores
    store = torch_distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    return torch_distributed.PrefixStore(f"restart-{restart}", store)


def _seconds(text: str) -> float | Literal["auto"]:
    return "auto" if text == "auto" else float(text)


class Trainer:
    """One rank of a run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        kind = args.device_type or ("cuda" if torch.cuda.is_available() else "cpu")
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if kind == "cuda" else kind)
        backend = "nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, store=_own_store(), rank=self.rank, world_size=self.world)
        if os.environ.get("NANOCHAT_FORCE_SDPA") == "math":
            torch.backends.cuda.enable_flash_sdp(False)
        self.dtype = _DTYPES[os.environ.get("NANOCHAT_DTYPE", "float32")]
        torch.manual_seed(42)
        shape = Shape.of(args.depth, args.aspect_ratio, args.head_dim, args.max_seq_len)
        self.plain = GPT(shape).to(self.device)
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), lr=args.learning_rate, weight_decay=0.0)
        self.first = checkpoint.load_latest(args.checkpoint_dir, self.plain, self.optimizer) if args.resume else 0
        self.model = DistributedDataParallel(self.plain, broadcast_buffers=False)  # they are constants
        self.accumulation = self._accumulation()
        training, self.evaluation = list_shards(data_directory())
        self.shards = Shards(
            training,
            self.rank,
            self.world,
            args.device_batch_size,
            args.max_seq_len,
            cycle=args.num_iterations > 0,
        )
        self.digest = digest(training)
        batches = self.shards.count() if args.workers == 0 else None
        self.rounds = args.num_iterations if args.num_iterations > 0 else batches
        self.beacon: Beacon | Watchdog
        if args.watchdog:
            self.beacon = Watchdog(args.watchdog, on_hang=args.on_hang, rank=self.rank, world_size=self.world).start()
        else:
            self.beacon = Beacon(rank=self.rank, world_size=self.world, run=os.environ.get("TORCHELASTIC_RUN_ID"))
        self.say(
            f"{args.run}: {parameters(self.plain):,} parameters, dim {shape.dim}, {shape.heads} heads, {self.world} ranks, "
            f"{self.accumulation} micro-batches per step, {len(training)} shards, {self.rounds} rounds"
        )

    def say(self, text: str) -> None:
        """Print, on rank 0."""
        if self.rank == 0:
            print(text, flush=True)

    def beat(self, step: int, phase: str = "train") -> None:
        """Publish the progress."""
        total = self.rounds
        self.beacon.beat(
            step, batches=step, of=total, shards=len(self.shards.paths), digest=self.digest, phase=phase,
        )  # fmt: skip

    @contextlib.contextmanager
    def phase(self, done: int, name: str) -> Iterator[None]:
        """Long work between steps, with a longer timeout of the watchdog."""
        if isinstance(self.beacon, Watchdog):
            with self.beacon.phase(name, self.args.phase_patience):
                yield
        else:
            self.beat(done, name)
            yield

    def _accumulation(self) -> int:
        """Micro-batches per step, from the total batch size in tokens."""
        per_round = self.args.device_batch_size * self.args.max_seq_len * self.world
        total = self.args.total_batch_size
        if total <= 0:
            return 1
        if total % per_round:
            raise SystemExit(
                f"--total-batch-size {total} is not a multiple of {per_round} tokens, which is one micro-batch on all ranks"
            )
        return int(total // per_round)

    def loss(self, batch: Batch, model: nn.Module) -> Tensor:
        """The mean loss of one micro-batch."""
        inputs, targets = (part.to(self.device) for part in batch)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            result: Tensor = model(inputs, targets)
        return result

    def train(self) -> None:
        """Train until the end."""
        batches = loader(self.shards, self.args.workers)
        self.beat(self.first)
        last = self.args.num_iterations if self.args.num_iterations > 0 else 1 << 40  # or until the data ends
        for step in range(self.first, last):
            faults.before_step(self.args.fault, self.rank, step)
            micro_batches = list(self.take(batches))
            if len(micro_batches) < self.accumulation:
                break
            began = time.perf_counter()
            loss = self.step(micro_batches)
            time.sleep(max(0.0, began + self.args.step_seconds - time.perf_counter()))
            self._report(step, loss, time.perf_counter() - began)
            self.beat(step + 1)
            self._now_and_then(step + 1)
            if self._agree_to_stop(step):
                break
        self.finish()

    def take(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The micro-batches of one step; fewer at the end of the data."""
        for _, batch in zip(range(self.accumulation), batches, strict=False):
            yield batch

    def step(self, micro_batches: list[Batch]) -> float:
        """Forward, backward, update. Returns the mean loss of this rank."""
        total = 0.0
        for index, batch in enumerate(micro_batches):
            last = index == len(micro_batches) - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = self.loss(batch, self.model) / len(micro_batches)
                loss.backward()
            total += loss.item()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def _report(self, step: int, loss: float, seconds: float) -> None:
        if step == self.first:
            self._check_agreement()
        if step % self.args.log_every == 0:
            tokens = self.args.device_batch_size * self.args.max_seq_len * self.accumulation * self.world
            timing = self.model._get_ddp_logging_data()
            spent = timing.get("backward_comm_time", 0) / 1e6  # ns; DDP samples the first 10 steps and every 100th
            size = 2 * parameters(self.plain) * 4
            self.say(
                f"step {step:5d}  loss {loss:.4f}  {seconds * 1000:.0f} ms  {tokens / seconds:,.0f} tokens/s  "
                f"all-reduce {spent:.1f} ms for {size / 1e6:.1f} MB{_link_time(size)}"
            )

    def _check_agreement(self) -> None:
        """After the first step, check that the weights of all ranks are equal."""
        mine = sum(parameter.double().sum() for parameter in self.plain.parameters())
        assert isinstance(mine, Tensor)  # noqa: S101
        sums = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(sums, mine.detach())
        if any(not torch.allclose(mine, other, rtol=1e-6) for other in sums):
            raise SystemExit(f"rank {self.rank}: weights differ between ranks after the first step: {sums}")
        self.say(f"weights agree on all {self.world} ranks")

    def _agree_to_stop(self, step: int) -> bool:
        """Rank 0 decides for all ranks, so that all leave the loop at the same step."""
        fault = self.args.fault
        flag = torch.zeros(1, device=self.device)
        if fault is not None and fault.hits("skipped-collective", self.rank, step):
            return False
        if fault is not None and fault.hits("mismatched-collective", self.rank, step):
            dist.all_reduce(flag)
        else:
            dist.broadcast(flag, src=0)
        return bool(flag.item())

    def _now_and_then(self, done: int) -> None:
        """Evaluation by all ranks; metric, sample and checkpoint by rank 0 while the others wait."""
        args = self.args
        if args.eval_every and done % args.eval_every == 0:
            with self.phase(done, "evaluate"):
                self.say(f"evaluation after {done}: {self.evaluate():.4f}")
        alone = (
            (args.core_metric_every, "metric", self.core_metric),
            (args.sample_every, "sample", self.sample),
            (args.save_every, "checkpoint", lambda: self.save(done)),
        )
        for every, phase, action in alone:
            if every and done % every == 0:
                if self.rank == 0:
                    with self.phase(done, phase):
                        action()
                dist.barrier()

    @torch.no_grad()
    def evaluate(self) -> float:
        """Mean loss over --eval-tokens of the evaluation shard, computed by all ranks together."""
        size = self.args.device_batch_size * self.args.max_seq_len
        shards = Shards(
            self.evaluation, self.rank, self.world, self.args.device_batch_size, self.args.max_seq_len, False
        )
        total = torch.zeros(2)
        for _, batch in zip(range(max(1, self.args.eval_tokens // size // self.world)), shards, strict=False):
            total += torch.tensor([self.loss(batch, self.plain).item(), 1.0])
        dist.all_reduce(total)
        return float(total[0] / total[1])

    @torch.no_grad()
    def core_metric(self) -> None:
        """Share of correctly predicted bytes, computed by rank 0 alone. It is slow, like real metrics of this kind."""
        size = self.args.device_batch_size * self.args.max_seq_len
        shards = Shards(self.evaluation, 0, 1, self.args.device_batch_size, self.args.max_seq_len, True)
        right = seen = 0
        for _, (inputs, targets) in zip(range(self.args.core_metric_tokens // size), shards, strict=False):
            right += int((self.plain(inputs.to(self.device)).argmax(-1).cpu() == targets).sum())
            seen += targets.numel()
        self.say(f"metric: {right / max(1, seen):.3f} of {seen} bytes right")

    @torch.no_grad()
    def sample(self, length: int = 64) -> None:
        """Print text that the model generates from the start of a document."""
        tokens = torch.tensor([[BEGIN, *b"def "]], device=self.device)
        for _ in range(length):
            logits = self.plain(tokens[:, -self.args.max_seq_len :])[0, -1, :256]
            tokens = torch.cat((tokens, torch.multinomial((logits / 0.8).softmax(-1), 1)[None]), dim=1)
        self.say("sample: " + repr(bytes(tokens[0, 1:].tolist()).decode("utf-8", "replace")))

    def save(self, done: int) -> None:
        """Write a checkpoint."""
        if self.args.checkpoint_dir is None:
            raise SystemExit("--save-every needs --checkpoint-dir")
        self.say(f"checkpoint {checkpoint.save(self.args.checkpoint_dir, done, self.plain, self.optimizer)}")

    def finish(self) -> None:
        """Wait for all ranks, evaluate, and exit together."""
        dist.barrier()
        if self.evaluation:
            self.say(f"evaluation at the end: {self.evaluate():.4f}")
        dist.barrier()
        self.beacon.close()
        dist.destroy_process_group()


def _link_time(size: int) -> str:
    """The time that the fastest interface with a known speed would need for `size` bytes, as text."""
    speeds = []
    for file in Path("/sys/class/net").glob("*/speed"):
        with contextlib.suppress(OSError, ValueError):
            speeds.append(int(file.read_text()))
    fastest = max((speed for speed in speeds if speed > 0), default=0)
    return f" (the link alone: {size * 8 / fastest / 1e3:.1f} ms at {fastest} Mbit/s)" if fastest else ""


def main() -> None:
    """The command."""
    Trainer(arguments()).train()


if __name__ == "__main__":
    main()
