"""Memory that was made to be read: each process spoils only its own evidence, within its budget."""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.memory import locate, memory
from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.memory.maps import Mapping
from hangdoc.observe.memory.memory import Memory, Overspent, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.memory.python_state import Modules, live_environment, p2p_ops
from hangdoc.observe.torch.interpreter_state import InterpreterState
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Interpreter, Unavailable
from tests.hostile.fuzz import fake_memory
from tests.hostile.fuzz.bounds import bounded
from tests.hostile.fuzz.evidence import storable
from tests.hostile.fuzz.interpreters import read_everything, recording
from tests.pythons import observed, running

GOOD = "import sys; steps = 7; print('ready', flush=True); sys.stdin.read()"
# 300 variables with 46 objects of 46 objects: three million reads.
ENDLESS = """
import os, sys
class Node: pass
leaf, inner = Node(), Node()
vars(leaf).update({f"n{index}": object() for index in range(46)})
vars(inner).update({f"n{index}": leaf for index in range(46)})
for index in range(290): globals()[f"v{index}"] = inner
print("ready", flush=True); sys.stdin.read()
"""
LARGE_ENVIRONMENT = """
import os, sys
os.environ._data.update({b"%d" % index: b"x" * 4000 for index in range(9000)})
print("ready", flush=True); sys.stdin.read()
"""


@pytest.mark.parametrize("program", [ENDLESS, LARGE_ENVIRONMENT], ids=["objects", "environment"])
def test_an_endless_process_beside_a_good_one(program: str, can_attach: None) -> None:
    with (
        running([sys.executable], program) as endless,
        running([sys.executable], GOOD) as good,
        observed(endless, good) as observation,
        bounded(seconds=4.0),
    ):
        probe = InterpreterState()
        for step in (probe.open, probe.during, probe.close):
            step(observation)
        found = {pid: value for pid, _, value in probe.evidence(observation)}
    bad = found[endless]
    assert isinstance(bad, Unavailable) or not bad.environment  # type: ignore[attr-defined]
    seen = found[good]
    assert isinstance(seen, Interpreter)
    assert [local.text for local in seen.globals if local.name == "steps"] == ["7"]


def test_all_readings_of_a_process_share_a_budget(can_attach: None) -> None:
    """Five probes that read an endless process take no longer than one, and the next look reads it again."""
    with running([sys.executable], ENDLESS) as pid, observed(pid) as observation:
        target = observation.targets[pid]
        with bounded(seconds=3.0):
            results = [InterpreterState().read(observation, target) for _ in range(5)]
        assert [isinstance(one, Unavailable) and one.reason for one in results] == [
            "reading its memory takes too long"
        ] * 5
        assert observation.budget(pid).spent
        observation.deadline = Deadline(60)
        assert not observation.budget(pid).spent


def test_a_spent_budget_is_not_hidden() -> None:
    """Readers skip single objects that can't be read; what they return then would look complete."""
    with fake_memory.memory_of({4096: bytes(4096)}):
        with pytest.raises(Overspent), Memory(1, Layout(), budget=Budget(size=50_000)) as opened:
            for _ in range(1_000):
                with contextlib.suppress(Unreadable):
                    opened.word(4096)
        with pytest.raises(Overspent), Memory(1, Layout(), budget=Budget(seconds=0.01)) as opened:
            while True:
                opened.word(4096)


def test_the_layout_of_one_process_is_not_believed_of_another(
    can_attach: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker has the same interpreter, and a function whose docstring says what its name should."""
    monkeypatch.setattr(locate, "_layouts", {})
    monkeypatch.setattr(locate, "_places", {})
    poison = """
import os, sys
def other(): pass
other.__name__, other.__qualname__, other.__doc__ = "a", "b", "getenv"
os.getenv = other
print("ready", flush=True); sys.stdin.read()
"""
    victim = """
import sys
class P2POp:
    def __init__(self, op, peer): self.op, self.peer = op, peer
def isend(): "Send."
calls = [P2POp(isend, 1)]
print("ready", flush=True); sys.stdin.read()
"""
    with running([sys.executable], poison) as first, running([sys.executable], victim) as second:
        wrong = locate.locate(ProcFS(), first).layout.function_name
        image = locate.locate(ProcFS(), second)
        with Memory(second, image.layout) as opened:
            calls = Modules(opened, image).namespace("__main__")["__main__"]["calls"]
            assert [one.text for one in p2p_ops(opened, "calls", calls)] == ["P2POp(isend, 1)"]
        assert wrong != image.layout.function_name, "the attack works on the attacker"


def test_a_program_that_is_mapped_sixty_thousand_times() -> None:
    program = os.readlink(f"/proc/{os.getpid()}/exe")
    files = [Mapping(address * 4096, program, "fd:00", 7) for address in range(1, 60_000)]
    with bounded(seconds=1.0):
        assert len(locate._find_pythons_among(ProcFS(), os.getpid(), files)) < 100


def test_a_reading_that_never_returns_holds_up_no_other_process(
    monkeypatch: pytest.MonkeyPatch, can_attach: None
) -> None:
    """Memory that is mapped from a file system of the process's own may block its reader for ever."""
    entered, released = threading.Event(), threading.Event()

    def pread(file: int, size: int, address: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{file}") == f"/proc/{blocking}/mem":
            entered.set()
            released.wait()
        return os.pread(file, size, address)

    system = {name: getattr(os, name) for name in ("O_RDONLY", "O_CLOEXEC", "open", "close")}
    monkeypatch.setattr(memory, "os", SimpleNamespace(**system, pread=pread))
    with (
        running([sys.executable], GOOD) as blocking,
        running([sys.executable], GOOD) as good,
        observed(blocking, good) as observation,
        ThreadPoolExecutor(2) as threads,
    ):
        read = InterpreterState().read
        try:
            threads.submit(read, observation, observation.targets[blocking])
            assert entered.wait(60)
            assert isinstance(threads.submit(read, observation, observation.targets[good]).result(60), Interpreter)
        finally:
            released.set()


def test_an_environment_that_no_program_could_have(can_attach: None) -> None:
    with (
        running([sys.executable], LARGE_ENVIRONMENT) as pid,
        observed(pid) as observation,
        observation.memory(pid) as opened,
    ):
        modules = Modules(opened, observation.image(pid)).namespace("os")
        with pytest.raises(Unreadable, match="larger than that of any program"):
            live_environment(opened, modules["os"])


@pytest.mark.parametrize("change", ["self", "zero", "ones", "next"])
def test_every_pointer_of_a_page_leads_nowhere(change: str) -> None:
    """Types that are their own type, dicts that are their own keys, lists that contain themselves: a whole page at a time."""
    seen = recording()
    for page in sorted({address & -4096 for address in seen.main.values()}):
        words = {
            "self": b"".join((page + at).to_bytes(8, "little") for at in range(0, 4096, 8)),
            "next": b"".join((page + (at + 8) % 4096).to_bytes(8, "little") for at in range(0, 4096, 8)),
            "zero": bytes(4096),
            "ones": b"\xff" * 4096,
        }
        with fake_memory.memory_of({**seen.pages, page: words[change]}), bounded():
            read_everything(ProcFS(seen.root), seen.pid, seen.main)


def test_objects_are_storable() -> None:
    """The memory of a real process, unchanged, gives the evidence that it should."""
    seen = recording()
    target = Target(seen.pid, 1, "rank", "python", (), "S", 0, environment={})
    with fake_memory.memory_of(seen.pages):
        observation = Observation(ProcFS(seen.root), Deadline(30), 0.1, "never", {seen.pid: target})
        found = InterpreterState().read(observation, target)
    assert isinstance(found, Interpreter)
    storable(found)
    assert {local.name: local.text for local in found.globals}["name"] == "'plain'"
    assert [group.ranks for group in found.groups] == [(0, 1), (0,)]


def test_names_are_cut_or_skipped(can_attach: None) -> None:
    """The rules search in names, and some searches take the square of their length."""
    program = """
import sys
class Node: pass
node = Node()
vars(node)["accum" * 800] = vars(node)["kept"] = 3
globals()["accum" * 800] = 3
print("ready", flush=True); sys.stdin.read()
"""
    with running([sys.executable], program) as pid, observed(pid) as observation:
        found = InterpreterState().read(observation, observation.targets[pid])
    assert isinstance(found, Interpreter)
    names = [local.name for local in found.globals]
    assert "node.kept" in names
    assert max(map(len, names)) < 400
