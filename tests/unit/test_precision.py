"""In which type a rank computes: what is read from its memory, and what counts as use."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.torch.precision import precisions
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ranks.precision import autocast_to
from hangdoc.snapshot import Frame
from tests.rules.shapes import machine
from tests.unit.builders import TORCH, frame, local, rank, snapshot, stack, train
from tests.unit.test_what_ranks_wait_for import variables_of

PROGRAM = """
import sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.ModuleList([torch.nn.Linear(8, 8).to(torch.bfloat16), torch.nn.LayerNorm(8)])
class Trainer: pass
net, trainer, plain = Net(), Trainer(), Trainer()
trainer.model, plain.steps = net, 3
entered, off, never = (torch.autocast("cpu", dtype=torch.float16, enabled=on) for on in (True, False, True))
with entered, off: pass
dtype, relu = torch.float16, torch.nn.ReLU()
unread = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LazyLinear(2))
large = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(13)))
tied = torch.nn.Sequential(*(torch.nn.Linear(2, 2, bias=False) for _ in range(2)))
tied[1].weight = tied[0].weight
print(flush=True); sys.stdin.read()
"""


def test_models_and_autocasts_are_read_from_memory() -> None:
    with variables_of(PROGRAM) as (memory, main):
        found = {
            name: [(one.name, one.text) for one in precisions(memory, name, main[name])]
            for name in (
                "net",
                "trainer",
                "plain",
                "entered",
                "off",
                "never",
                "dtype",
                "relu",
                "unread",
                "large",
                "tied",
            )
        }
    assert found == {
        "net": [("net.parameters()", "bfloat16[72], float32[16]")],
        "trainer": [("trainer.model.parameters()", "bfloat16[72], float32[16]")], "unread": [],
        "large": [("large.parameters()", "float32[72], ...")], "tied": [("tied.parameters()", "float32[4]")],
        "plain": [], "entered": [("entered", "autocast(cpu, float16)")], "off": [], "never": [], "dtype": [], "relu": [],
    }  # fmt: skip


SHARDED = """
import os, sys, torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 1))
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
for part in (net[0], net):
    fully_shard(part, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
net.unshard()
print(flush=True); sys.stdin.read()
"""


def test_sharded_and_gathered_parameters_are_all_counted() -> None:
    """Those of one layer are gathered in bfloat16, those of the other are half shards (FSDP2)."""
    with variables_of(SHARDED) as (memory, main):
        found = [(each.name, each.text) for each in precisions(memory, "net", main["net"])]
    assert found == [("net.parameters()", "float32[42], bfloat16[7]")]


def test_the_contexts_of_a_line_are_read_from_its_source(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        "with a(1), b:\n    with torch.autocast('cpu'):\n        x = 1\n    y = 2\nz = 3\nwith lock: pass\n"
    )
    os.utime(path, (0, 0))  # older than this process, or it is not trusted
    sources = Sources(ProcFS())
    lines = (3, 4, 5, 6)
    found = sources.annotate(
        os.getpid(), ProcFS().stat("self").start_ticks, stack(*(frame("<module>", line, str(path)) for line in lines))
    )
    contexts = [one.contexts for one in found.threads[0].frames]
    assert contexts == [
        ("a(1)", "b", "torch.autocast('cpu')"),
        ("a(1)", "b"),
        (),
        (),
    ]  # the last one may wait for its lock


@pytest.mark.parametrize(
    ("context", "dtype"),
    [
        ("torch.autocast('cpu')", "bfloat16"),
        ("torch.autocast(device_type='cpu', dtype=torch.float16)", "float16"),
        ("torch.amp.autocast(device, ptdtype)", "bfloat16"),
        ("torch.cpu.amp.autocast(dtype=torch.float16)", "float16"),
        ("autocast('cpu', enabled=on)", "bfloat16"),
        ("autocast('cpu', enabled=off)", None),
        ("torch.cpu.amp.autocast(False)", None),
        ("autocast('cuda', dtype=torch.float16)", None),
        ("autocast(unknown)", None),
        ("autocast('cpu', dtype=torch.float32)", None),
        ("autocast('cpu', **more)", None),
        ("autocast('cpu', enabled=args.amp)", None),
        ("nullcontext()", None),
        ("ctx", None),
        ("open(", None),
    ],
)
def test_the_type_of_a_with_block(context: str, dtype: str | None) -> None:
    known = {"device": "'cpu'", "ptdtype": "torch.bfloat16", "on": "True", "off": "False"}
    assert autocast_to(context, known) == dtype


def layer(function: str, text: str) -> Frame:
    return frame(function, 9, TORCH + "nn/modules/linear.py", locals=(local("input", text),))


@pytest.mark.parametrize(
    ("frames", "evidence"),
    [
        ((train(12, locals=(local("ctx", "autocast(cpu, bfloat16)"),)),), "`ctx` is an active autocast to bfloat16"),
        ((train(12, contexts=("torch.autocast('cpu', dtype=kind)",), locals=(local("kind", "torch.bfloat16"),)),),
         "line 12 runs under `with torch.autocast('cpu', dtype=kind)`"),
        ((layer("Linear.forward", "bfloat16[4, 8]"), train(12)), "`input` of Linear.forward is bfloat16[4, 8]"),
        ((layer("Linear.forward", "float32[4, 8]"), train(12)), None),
        ((train(12, locals=(local("ctx", "autocast(cuda, bfloat16)"),)),), None),
        # What is trained is the larger one.
        ((train(12, locals=(local("model.parameters()", "float32[999]"), local("ema.parameters()", "bfloat16[72]"))),), None),
        ((train(12, locals=(local("ema.parameters()", "bfloat16[72]"), local("model.parameters()", "float32[72]"))),), None),
        ((train(12, locals=(local("norm.parameters()", "float32[9]"), local("model.parameters()", "bfloat16[72]"))),),
         "72 elements of model.parameters() are bfloat16"),
        # Of a large model, only the first parameters are read.
        *(((train(12, locals=(local("norm.parameters()", "float32[999]"), local("model.parameters()", first))),),
           "most of the first elements of model.parameters() are bfloat16")
          for first in ("bfloat16[72], float32[9], ...", "bfloat16")),
        ((train(12, locals=(local("model.parameters()", "float32"), local("ema.parameters()", "bfloat16"))),), None),
    ],
)  # fmt: skip
def test_what_counts_as_use(frames: tuple[Frame, ...], evidence: str | None) -> None:
    seen = snapshot(rank(0, *frames, cpu=0.9, world=1), machine=machine(cpu_flags=("avx2",)))
    findings = [one for one in diagnose(seen).jobs[0].findings if one.code == "HD504"]
    assert [one.evidence[0].text.startswith(evidence or "?") for one in findings] == [True] * (evidence is not None)
    native = replace(seen.hosts[0], machine=machine(cpu_flags=("avx2", "amx_bf16")))
    assert not [f for f in diagnose(replace(seen, hosts=(native,))).jobs[0].findings if f.code == "HD504"]
