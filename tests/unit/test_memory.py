"""Reading another interpreter's memory: every kind of value, in every Python at hand, checked against a real process."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdoc.cli.group import cli
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.look import abilities
from hangdoc.observe.memory import locate
from hangdoc.observe.memory.mapped_elf import MappedFile
from hangdoc.observe.memory.maps import mapped_files
from hangdoc.observe.memory.memory import Memory, Unreadable, Unsupported
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.memory.python_state import Modules, amounts, live_environment, p2p_ops, process_groups, variable
from hangdoc.observe.torch import interpreter_state
from hangdoc.observe.torch.interpreter_state import InterpreterState
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Group, Interpreter, Unavailable
from tests.pythons import VERSIONS, command, running

PROGRAM = """
import os, sys
os.environ["SET_LATER"] = "yes, später"
zero, small, negative, large, low, huge = 0, 7, -5, 2**40 + 3, -(2**40 + 3), 2**90
flag, ratio, name, accent, wide, emoji = True, 2.5, "plain", "é", "日本", "😀"
items, pair, table, group, empty = [1, 2, 3], (1, 2), {"a": 1}, {1, 2, 3, 4}, []
class Data:
    def __init__(self, n): self.paths, self.size, self.name, self.ratio, self.shuffle = list(range(n)), n, "x", 2.5e-07, False
class Loader:
    def __init__(self, data): self.dataset, self.batch_size, self._private = data, 4, 9
class Named(list):
    pass
loader, with_dict, from_list, bare = Loader(Data(12)), Loader(Data(12)), Named(), Named()
vars(with_dict)["later"] = 6
from_list.extra = 8
class P2POp:
    def __init__(self, op, peer): self.op, self.peer = op, peer
def isend(): pass
calls = [P2POp(isend, 1), P2POp(isend, 3)]
class ProcessGroup: pass
world, half = ProcessGroup(), ProcessGroup()
class GroupCoordinator:
    def __init__(self, name, device, cpu): self.unique_name, self.device_group, self.cpu_group = name, device, cpu
_TP, _PP, lower, _OTHER = GroupCoordinator("tp:0", half, world), None, GroupCoordinator("x", half, half), Loader(3)
_EP = GroupCoordinator("ep:0", half, 7)
many = {f"name{n}": n for n in range(3000)}
for n in range(0, 3000, 7): del many[f"name{n}"]
nothing = {}
mixed = {1: 2, (): 3, "é": 4, **many}
_pg_names = {world: "0", half: "half"}
_pg_group_ranks = {world: {0: 0, 1: 1, 2: 2}, half: {2: 0, 0: 1}}
print("ready", flush=True)
sys.stdin.read()
"""
RUNNING = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module", params=VERSIONS)
def victim(request: pytest.FixtureRequest, can_attach: None) -> Iterator[tuple[int, str]]:
    version: str = request.param
    words = command(version)
    if words is None:
        pytest.skip(f"Python {version} is not installed here (`make pythons` runs 3.13 to 3.15)")
    with running(words, PROGRAM) as pid:
        yield pid, version


@pytest.fixture
def memory(victim: tuple[int, str]) -> Iterator[Memory]:
    image = locate.locate(ProcFS(), victim[0])
    assert (f"{image.version[0]}.{image.version[1]}", image.gap) == (victim[1], "")
    with Memory(victim[0], image.layout) as opened:
        yield opened


def main_of(memory: Memory, module: str = "__main__") -> dict[str, int]:
    return Modules(memory, locate.locate(ProcFS(), memory.pid)).namespace(module)[module]


def test_every_kind_of_value(memory: Memory) -> None:
    texts = {}
    for name, address in main_of(memory).items():
        try:
            value = variable(memory, name, address)
        except Unreadable:
            continue
        if value is not None:
            texts[name] = value.text
    expected = {
        "zero": "0", "small": "7", "negative": "-5", "large": str(2**40 + 3), "low": str(-(2**40) - 3), "flag": "True",
        "ratio": "2.5", "name": "'plain'", "accent": "'é'", "wide": "'日本'", "emoji": "'😀'", "items": "<list of 3>",
        "pair": "<tuple of 2>", "table": "<dict of 1>", "group": "<set of 4>", "empty": "<list of 0>",
    }  # fmt: skip
    assert {name: texts.get(name) for name in expected} == expected
    assert "huge" not in texts


@pytest.mark.parametrize("table", ["many", "mixed"])
def test_names_in_a_large_dict_are_found_by_their_hash(memory: Memory, table: str) -> None:
    address = main_of(memory)[table]
    every = dict(memory.named_items(address))
    assert len(every) == 2571 + (table == "mixed")
    memory.str_hash = locate.locate(ProcFS(), memory.pid).str_hash
    assert memory.str_hash is not None
    reads, plain = [], memory.read
    memory.read = lambda at, size: reads.append(size) or plain(at, size)  # type: ignore[method-assign,func-returns-value]
    for first in range(0, 3000, 100):
        names = [f"name{number}" for number in range(first, first + 100)]
        assert memory.find_named(address, names) == {name: every[name] for name in names if name in every}
    assert max(reads) < 256  # not the whole table


def test_the_keys_of_all_empty_dicts_have_a_form_of_their_own(memory: Memory) -> None:
    """Since 3.14, they have room for more indices than they have slots (Objects/dictobject.c)."""
    if memory.layout.wide_keys:
        pytest.skip("its empty dicts have no keys of their own")
    address = main_of(memory)["nothing"]
    at = memory.word(address + 32)
    plain = memory.read

    def read(start: int, size: int) -> bytes:
        raw = plain(start, size)
        return raw[:8] + b"\x00\x03" + raw[10:] if start == at and size == 32 else raw

    memory.read = read  # type: ignore[method-assign]
    assert list(memory.items(address)) == []


def test_a_hash_that_does_not_come_out_is_not_used(memory: Memory) -> None:
    image = locate.locate(ProcFS(), memory.pid)
    runtime = next(locate._find_runtimes(memory, mapped_files(ProcFS(), memory.pid)))
    assert locate._find_hash(memory, image.modules, runtime) == image.str_hash
    for secret in (None, runtime.address, 8):
        assert locate._find_hash(memory, image.modules, runtime._replace(secret=secret)) is None


def test_a_dict_without_an_end_of_a_search_is_unreadable(memory: Memory) -> None:
    address = main_of(memory)["many"]
    memory.str_hash = locate.locate(ProcFS(), memory.pid).str_hash
    keys = memory._read_combined_keys(address)
    plain = memory.read
    used = range(keys.indices, keys.indices + keys.slots * keys.width)
    deleted = (-2).to_bytes(keys.width, "little", signed=True)
    memory.read = lambda at, size: deleted if at in used else plain(at, size)  # type: ignore[method-assign]
    with pytest.raises(Unreadable, match="unknown form"):
        memory.find_named(address, ["name1"])


def test_elements(memory: Memory) -> None:
    main = main_of(memory)
    assert [memory.integer(one) for one in memory.elements(main["items"], 9)] == [1, 2, 3]
    assert [memory.integer(one) for one in memory.elements(main["pair"], 9)] == [1, 2]


def test_amounts_inside_objects(memory: Memory) -> None:
    main = main_of(memory)
    found = {v.name: (v.text, v.number, v.length) for v in amounts(memory, "loader", main["loader"])}
    assert found == {
        "loader.dataset.paths": ("<list of 12>", None, 12),
        "loader.dataset.size": ("12", 12, None),
        "loader.dataset.ratio": ("2.5e-07", None, None),
        "loader.dataset.shuffle": ("False", None, None),
        "loader.batch_size": ("4", 4, None),
    }


def test_attributes_wherever_an_object_keeps_them(memory: Memory) -> None:
    main = main_of(memory)
    moved = dict(memory.attributes(main["with_dict"]))
    assert set(moved) == {"dataset", "batch_size", "_private", "later"}
    assert memory.integer(moved["later"]) == 6
    assert [memory.integer(value) for _, value in memory.attributes(main["from_list"])] == [8]
    assert list(memory.attributes(main["bare"])) == []
    for other in ("os", "Data", "isend", "small"):
        with pytest.raises(Unreadable):
            list(memory.attributes(main[other]))


def test_posted_calls_and_groups(memory: Memory) -> None:
    main = main_of(memory)
    assert [v.text for v in p2p_ops(memory, "calls", main["calls"])] == ["P2POp(isend, 1)", "P2POp(isend, 3)"]
    assert process_groups(memory, main) == (
        Group(address=main["world"], name="0", ranks=(0, 1, 2), default=True),
        Group(address=main["half"], name="half", ranks=(0, 2), default=False),
    )


def test_a_serving_engine_names_the_groups_that_it_holds(memory: Memory) -> None:
    main = main_of(memory)
    assert [group.label for group in process_groups(memory, main, main)] == ["tp:0 (cpu)", "tp:0"]


def test_the_environment_as_it_is_now(memory: Memory) -> None:
    inside = live_environment(memory, main_of(memory, "os"))
    assert inside["SET_LATER"] == "yes, später"
    assert inside["PATH"] == os.environ["PATH"]
    assert "SET_LATER" not in ProcFS().environ(memory.pid)


def test_nonsense_addresses_are_refused(memory: Memory) -> None:
    for address in (0, 8, 1 << 46, 1 << 63, 12345678):
        with pytest.raises(Unreadable):
            memory.text(address)


# --- what is not supported is said ---------------------------------------------------------------------------------


def test_a_process_without_python_is_said_to_be_one() -> None:
    child = subprocess.Popen(["sleep", "30"])
    try:
        with pytest.raises(Unsupported, match=r"no CPython found in /\S*sleep|coreutils"):
            locate.locate(ProcFS(), child.pid)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("version", "reason"),
    [("pypy3", "no CPython"), ("3.13t", "free-threaded"), ("3.14t", "free-threaded"), ("3.9", "does not know how")],
)
def test_other_interpreters_are_refused(version: str, reason: str, can_attach: None) -> None:
    words = command(version)
    if words is None:
        pytest.skip(f"{version} is not installed here")
    program = "import sys; print('ready', flush=True); sys.stdin.read()"
    with running(words, program) as pid, pytest.raises(Unsupported, match=reason):
        locate.locate(ProcFS(), pid)


STRANGE = """
import sys
sys.maxunicode = 5  # no form of int reads this as it should be
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch, can_attach: None) -> Iterator[list[int]]:
    """Two processes of an interpreter whose ints are not understood."""
    monkeypatch.setattr(locate, "_layouts", {})
    monkeypatch.setattr(interpreter_state, "_STARTING_SECONDS", 0.0)
    with running([sys.executable], STRANGE) as one, running([sys.executable], STRANGE) as other:
        yield [one, other]


def look(pids: list[int]) -> tuple[list[object], list[str]]:
    """What the probe says of these processes, and the problems."""
    proc = ProcFS()
    targets = {
        pid: Target(pid, os.getpid(), "rank", "python", (), "S", proc.stat(str(pid)).start_ticks, environment={})
        for pid in pids
    }
    observation = Observation(proc, Deadline(10), 0.1, "never", targets)
    probe = InterpreterState()
    for step in (probe.open, probe.during, probe.close):
        step(observation)
    return [value for _, _, value in probe.evidence(observation)], observation.problems


def test_a_layout_that_is_not_understood_is_a_problem_once(strangers: list[int]) -> None:
    found, problems = look(strangers)
    assert all(isinstance(one, Unavailable) and "stores ints" in one.reason for one in found)
    assert len(problems) == 1
    assert f"Python {RUNNING} (" in problems[0]
    assert "the module variables, changes of os.environ and process groups of its ranks are unknown" in problems[0]


def test_what_just_starts_is_no_problem(strangers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_state, "_STARTING_SECONDS", 60.0)
    found, problems = look(strangers)
    assert all(isinstance(one, Unavailable) and "stores ints" in one.reason for one in found)
    assert problems == []


def test_modules_are_read_where_instances_are_not(monkeypatch: pytest.MonkeyPatch, can_attach: None) -> None:
    """The half that is understood is used, and the other half is said to be missing."""
    monkeypatch.setattr(locate, "_layouts", {})
    monkeypatch.setattr(interpreter_state, "_STARTING_SECONDS", 0.0)
    program = "import os, sys; os.environ = os.environb = steps = 3; print('ready', flush=True); sys.stdin.read()"
    with running([sys.executable], program) as pid:
        (found,), problems = look([pid])
    assert isinstance(found, Interpreter)
    assert {local.name: local.text for local in found.globals}["steps"] == "3"
    assert [f"Python {RUNNING} (" in one and "stores attributes of objects" in one for one in problems] == [True]


@pytest.mark.parametrize(
    ("uid", "capabilities", "only", "remedy"),
    [
        (0, "1ffffffffff", "", ""),
        (0, "a80425fb", " of ranks that have no more capabilities than it", "add --cap-add=SYS_PTRACE (Docker)"),
        (1000, "0", " of the runs of uid 1000", "can read all"),
    ],
)
def test_doctor_concludes_no_more_than_it_can_read(
    monkeypatch: pytest.MonkeyPatch, uid: int, capabilities: str, only: str, remedy: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(abilities.ProcFS, "status", lambda proc, pid: {"CapEff": capabilities})
    ability = abilities._check_other_users()
    monkeypatch.setattr("hangdoc.cli.doctor.check_all", lambda: iter([ability]))
    lines = CliRunner().invoke(cli, ["doctor"], standalone_mode=False).stdout.splitlines()
    assert lines[-1] == f"hangdoc can access all it needs{only} here."
    assert remedy in lines[0]


def test_doctor_does_not_blame_permissions(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(proc: ProcFS, pid: int) -> None:
        raise Unsupported("Python 3.99 stores str")

    monkeypatch.setattr(abilities, "locate", refuse)
    monkeypatch.setattr(abilities.attach, "dump", lambda *_, **__: Unavailable(reason="py-spy failed: version 3.99"))
    found = {ability.name: ability for ability in abilities.check_all()}
    for name, reason in (("interpreter memory", "stores str"), ("stacks (ptrace)", "py-spy failed")):
        assert not found[name].works
        assert reason in found[name].found
        assert "Permissions are not the reason" in found[name].remedy
        assert "ptrace" not in found[name].remedy


def test_doctor_does_not_call_py_spy_too_old_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities.pyspy, "executable", lambda: None)
    found = {ability.name: ability for ability in abilities.check_all()}
    assert {found[name].remedy for name in ("py-spy", "stacks (ptrace)")} == {abilities._PY_SPY_MISSING}


@pytest.mark.parametrize(
    ("mode", "remedy"), [(None, "this program is gone"), (0o644, f"uid {os.geteuid()} may not execute it")]
)
def test_doctor_says_why_a_program_does_not_start(
    mode: int | None, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(abilities.pyspy, "executable", lambda: str(program))
    for ability in (abilities._check_py_spy(), *abilities._check_on_child()):
        assert not ability.works
        assert remedy in ability.remedy


def test_the_child_of_doctor_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C may end doctor before its child has written. Python then printed a traceback of a broken pipe."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho Traceback >&2\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert len(list(abilities._check_on_child())) == 3
    assert capfd.readouterr() == ("", "")


# --- in a container, and without the file ---------------------------------------------------------------------------

LOOK = """
import json, sys
from hangdoc.observe.memory.locate import locate
from hangdoc.observe.memory.maps import inner_path, mapped_files
from hangdoc.observe.memory.memory import Memory
from hangdoc.observe.access.process_files import files_of
from hangdoc.procfs import ProcFS
from hangdoc.observe.memory.python_state import Modules, amounts
pid, proc = int(sys.argv[1]), ProcFS()
image = locate(proc, pid)
with Memory(pid, image.layout) as memory:
    main = Modules(memory, image).namespace("__main__")["__main__"]
    numbers = {one.name: one.length for one in amounts(memory, "loader", main["loader"]) if one.length is not None}
python = next(one for one in mapped_files(proc, pid) if "python" in one.path)
with files_of(proc, pid, proc.stat(str(pid)).start_ticks) as files:
    reached = files.stat(inner_path(proc, pid, python)).st_ino == python.inode
print(json.dumps([numbers, python.path, reached]))
"""


@pytest.mark.parametrize("own_mounts", [False, True], ids=["chroot", "container"])
def test_a_rank_under_another_root_seen_from_outside(own_mounts: bool, tmp_path: Path, can_attach: None) -> None:
    """A chroot's files have another path here than inside; a container's mounts have none here at all."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a chroot")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "look.py").write_text(LOOK)
    root = tmp_path / "root"
    root.mkdir()
    into = f"cd {root} && pivot_root . mnt && exec chroot ." if own_mounts else f"exec chroot {root}"
    enter = f"mount --rbind / {root} && {into} {sys.executable} {tmp_path}/program.py"
    script = f"""
        mkfifo {tmp_path}/in {tmp_path}/out
        {"unshare --mount" if own_mounts else ""} sh -c '{enter}' < {tmp_path}/in > {tmp_path}/out &
        exec 3> {tmp_path}/in 4< {tmp_path}/out
        read line <&4
        {sys.executable} {tmp_path}/look.py $!
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    numbers, path, reached = json.loads(done.stdout)
    assert numbers == {"loader.dataset.paths": 12}
    assert path.startswith(str(root)) is not own_mounts
    assert reached


def test_the_interpreter_may_be_replaced_on_disk(tmp_path: Path, can_attach: None) -> None:
    """As by an upgrade under a running job: what is mapped counts, not what lies there now."""
    copy = tmp_path / f"python{RUNNING}"
    shutil.copy(os.path.realpath(sys.executable), copy)
    library = sysconfig.get_config_var("LIBDIR")
    with running([str(copy)], PROGRAM, {"PYTHONHOME": sys.base_prefix, "LD_LIBRARY_PATH": library}) as pid:
        copy.unlink()
        copy.write_bytes(b"something else")
        image = locate.locate(ProcFS(), pid)
        with Memory(pid, image.layout) as memory:
            assert memory.integer(main_of(memory)["small"]) == 7


def test_symbols_are_those_the_dynamic_linker_sees(can_attach: None) -> None:
    """Compared with what this process finds in itself."""
    expected = ctypes.addressof(ctypes.c_ulong.in_dll(ctypes.pythonapi, "Py_Version"))
    with Memory(os.getpid(), Layout()) as memory:
        bases = [one.base for one in mapped_files(ProcFS(), os.getpid()) if "python" in one.path.rsplit("/", 1)[-1]]
        found = [symbol for base in bases if (symbol := MappedFile(memory, base).symbol("Py_Version"))]
        assert [(symbol.address, symbol.size) for symbol in found] == [(expected, 8)]
        assert MappedFile(memory, bases[0]).symbol("no_such_symbol") is None
        with pytest.raises(Unreadable, match="not a 64-bit"):
            MappedFile(memory, expected)
