"""Which thread holds the lock that others wait for, by the `with` blocks in which the threads are."""

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ranks.enders import renewed_seconds_ago
from hangdoc.reasoning.ranks.locks import find_threads_behind
from hangdoc.snapshot import AwaitedFile, Clocks, Frame, Holder, KernelThread, Process, PythonThread, Stack
from tests.rules.shapes import in_loop
from tests.unit.builders import TORCH, frame, local, rank, snapshot, train

JOIN = (
    frame("Thread._wait_for_tstate_lock", 1139, "/usr/lib/python3.11/threading.py", library=True),
    frame("Thread.join", 1123, "/usr/lib/python3.11/threading.py", library=True),
    train(12, source="server.join()"),
)


def method(function: str, line: int, source: str, *contexts: str, of: int = 1) -> Frame:
    """A frame of a method of the object at the address `of`."""
    return frame(function, line, source=source, contexts=contexts, locals=(local("self", "<Server>", address=of),))


def with_threads(*threads: tuple[Frame, ...], main: tuple[Frame, ...] = JOIN, cpu: float = 0.0) -> Process:
    """A rank whose main thread is at `main` and whose other threads stand at some frames. The last one uses `cpu` of a core."""
    process = rank(1, *main, kernel={"syscall": "futex", "wchan": "futex_wait_queue"})
    assert isinstance(process.clocks, Clocks)
    own = [PythonThread(tid=101, name="MainThread", active=False, owns_gil=False, frames=main)]
    own += [
        PythonThread(tid=300 + at, name=f"serve-{at}", active=False, owns_gil=False, frames=frames)
        for at, frames in enumerate(threads)
    ]
    kernel = [
        KernelThread(
            tid=300 + at, name="python3", state="S", cpu_ns=int(cpu * 1e9) if at == len(threads) - 1 else 0,
            voluntary_switches=0, involuntary_switches=0, syscall="futex",
        )
        for at in range(len(threads))
    ]  # fmt: skip
    both = Stack(at_seconds=0.0, threads=tuple(own))
    clocks = replace(process.clocks, threads=(*process.clocks.threads, *kernel))
    return replace(process, stack=both, stack_before=both, clocks=clocks)


def job(process: Process, patience: float = 300.0) -> Job:
    found = diagnose(snapshot(in_loop(0, 4), process), patience=patience)
    assert not found.problems
    return found.jobs[0]


UPDATE = method("Server.update", 46, "with self.lock:")
AGAIN = (method("Server.restore", 35, "with self.lock:"), method("Server.update", 49, "self.restore()", "self.lock"))


def test_a_thread_that_waits_for_its_own_lock_never_continues() -> None:
    found = job(with_threads((UPDATE,), AGAIN))
    finding = found.findings[0]
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD304", (1,))
    assert "serve-1 holds `self.lock` and waits for it again at train.py:35" in finding.summary
    assert "serve-1 is inside `with self.lock` at train.py:49" in finding.evidence[0].text


SHOW = replace(
    method("Metrics.show", 9, "with self.lock: print(self.d)"),
    locals=(local("self", "<Metrics>", address=1), local("args", "(12, <frame at 0x7fa7d064b6b0>)")),
)
ADD = method("Metrics.add", 7, "with self.lock: self.d[k] = v")
ADD_BLOCK = method("Metrics.add", 8, "self.d[k] = v", "self.lock")
OTHERS_BLOCK = method("Metrics.add", 8, "self.d[k] = v", "self.lock", of=2)


@pytest.mark.parametrize(
    ("interrupted", "threads", "named"),
    [(ADD, 0, True), (ADD_BLOCK, 0, True), (OTHERS_BLOCK, 0, False), (ADD_BLOCK, 1, True), (ADD, 1, False)],
)
def test_a_handler_that_waits_for_the_lock_of_what_it_interrupted_is_named(
    interrupted: Frame, threads: int, named: bool
) -> None:
    """A signal that comes inside of the `with` block. In one of a single line, the thread may also wait for the lock: then only
    another thread can have it."""
    others = [(frame("serve", 4, source="requests.get()"),)] * threads
    found = job(with_threads(*others, main=(SHOW, interrupted, train(12))), patience=30.0)
    texts = [each.text for each in found.findings[0].evidence]
    handles = "Metrics.show (me/train.py:9) handles SIGUSR2, which interrupted Metrics.add"
    assert (handles in texts) is named
    assert ("the handler of SIGUSR2 waits for `self.lock`" in found.findings[0].summary) is named
    assert found.findings[0].remedy.startswith("Take no lock in the handler") is named


def test_locks_of_one_name_in_two_objects_are_two_locks() -> None:
    inner = method("Server.restore", 35, "with self.lock:", of=2)
    found = job(with_threads((inner, method("Server.update", 49, "other.restore()", "self.lock"))))
    assert found.verdict == "waiting"
    assert "again" not in found.findings[0].summary


def test_the_thread_that_holds_a_lock_and_waits_for_something_else_is_named() -> None:
    reads = method("Server.save", 60, "self.socket.recv(1)", "self.lock")
    found = job(with_threads((UPDATE,), main=(reads, train(12))), patience=30.0)
    assert (found.verdict, found.findings[0].culprits) == ("hung", (1,))
    blocked = job(with_threads((reads,), main=(UPDATE, train(12))), patience=30.0)
    assert "thread serve-0 holds `self.lock` at train.py:60 `self.socket.recv(1)`" in blocked.findings[0].summary


IN_CLOSURE = frame("do_POST", 72, source="self.wfile.write(reply)", contexts=("engine.lock",))
"""The source does not show which object `engine` is: it is a variable of an outer function."""
SENDS = AwaitedFile(kind="socket", name="socket:[7]", inode=7, holders=(Holder(pid=9, name="client", state="S"),))


def with_sender(*threads: tuple[Frame, ...], file: AwaitedFile = SENDS) -> Process:
    """A rank that waits for a lock, and whose first other thread sends data."""
    process = with_threads(*threads, main=(UPDATE, train(12)))
    assert isinstance(process.clocks, Clocks)
    kernel = [
        replace(each, syscall="sendto", files=(file,)) if each.tid == 300 else each for each in process.clocks.threads
    ]
    return replace(process, clocks=replace(process.clocks, threads=tuple(kernel)))


INSIDE = replace(IN_CLOSURE, contexts=("self.lock",), locals=UPDATE.locals)


@pytest.mark.parametrize("inside", [INSIDE, IN_CLOSURE])
def test_a_lock_whose_holder_waits_for_another_process_is_no_deadlock(inside: Frame) -> None:
    found = job(with_sender((inside,)), patience=30.0)
    finding = found.findings[0]
    lock, holds = inside.contexts[0], "probably holds" if inside is IN_CLOSURE else "holds"
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD304", (1,))
    assert f"thread serve-0 {holds} `{lock}` at train.py:72" in finding.summary
    assert "where it is sending data to pid 9 (client)" in finding.summary
    assert finding.remedy.startswith("This is no deadlock if that thread holds the lock")


@pytest.mark.parametrize(("inside", "verdict"), [(INSIDE, "waiting"), (IN_CLOSURE, "hung")])
def test_a_lock_whose_holder_waits_for_a_process_at_work_may_be_released(inside: Frame, verdict: str) -> None:
    """A thread that is only inferred to hold it may serve its client for hours, while nobody releases the lock."""
    at_work = replace(SENDS, holders=(Holder(pid=9, name="client", state="R", works=True),))
    assert job(with_sender((inside,), file=at_work), patience=30.0).verdict == verdict


@pytest.mark.parametrize(
    "threads",
    [
        ((replace(IN_CLOSURE, contexts=("engine.other",)),),),
        ((replace(IN_CLOSURE, file="/app/other.py"),),),
        ((IN_CLOSURE,), (IN_CLOSURE,)),
        ((OTHERS_BLOCK,),),
        ((UPDATE, IN_CLOSURE),),
    ],
    ids=["another name", "another file", "two threads", "another object", "waits for a lock itself"],
)
def test_no_thread_is_inferred_to_hold_a_lock(threads: tuple[tuple[Frame, ...], ...]) -> None:
    found = job(with_threads(*threads, main=(UPDATE, train(12))), patience=30.0)
    assert "holds" not in found.findings[0].summary


@pytest.mark.parametrize(
    ("inside", "shown"),
    [
        ((replace(IN_CLOSURE, file="/app/other.py"),), True),
        ((replace(OTHERS_BLOCK, file="/app/other.py"),), False),
        ((replace(IN_CLOSURE, file="/app/other.py", contexts=("engine.other",)),), False),
        ((UPDATE, replace(IN_CLOSURE, file="/app/other.py")), False),
    ],
    ids=["an unknown object", "another object", "another name", "waits for a lock itself"],
)
def test_a_thread_in_a_block_of_that_name_in_another_file_may_hold_the_lock(
    inside: tuple[Frame, ...], shown: bool
) -> None:
    """A handler holds the lock of an engine, and waits for the engine."""
    found = job(with_threads(inside, main=(UPDATE, train(12))), patience=30.0)
    finding = found.findings[0]
    text = "thread serve-0 is inside `with engine.lock` at other.py:72"
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD304", (1,))
    assert (f"{text} `self.wfile.write(reply)`, which may be the same lock" in finding.summary) is shown
    assert any(one.text.startswith(text) for one in finding.evidence) is shown
    assert finding.remedy.startswith("Look at that thread") is shown


@pytest.mark.parametrize(("source", "behind"), [("self.socket.recv(1)", ["serve-0"]), ("with self.other:", [])])
def test_no_thread_is_behind_one_that_waits_for_a_lock_itself(source: str, behind: list[str]) -> None:
    """Whoever has that other lock holds both of them up."""
    process = with_threads((UPDATE,), main=(method("Server.save", 60, source, "self.lock"), train(12)))
    assert isinstance(process.stack, Stack)
    found = find_threads_behind(process, process.stack.threads[0])
    assert [waiter.name for waiter, _ in found] == behind


def test_the_wait_of_a_condition_gives_its_lock_back() -> None:
    waits = method("Server.next", 70, "self.lock.wait()", "self.lock")
    found = job(with_threads((waits,), main=(UPDATE, train(12))), patience=30.0)
    assert "serve-0 holds" not in found.findings[0].summary


def test_other_threads_at_work_may_release_the_lock() -> None:
    works = method("Server.save", 80, "blob = pickle.dumps(self.values)")
    found = job(with_threads((UPDATE,), AGAIN, (works,), cpu=0.5))
    assert found.verdict == "waiting"


def test_two_threads_that_hold_each_others_locks_never_continue() -> None:
    """The source names both locks alike; they belong to two objects. Another thread at work changes nothing."""
    exporter = (
        method("Vocabulary.fill", 16, "with self.lock:"),
        method("Registry.export", 29, "fn()", "self.lock", of=2),
    )
    counter = (
        method("Registry.inc", 17, "with self.lock:", of=2),
        method("Vocabulary.encode", 41, "self.registry.inc('rows')", "self.lock"),
    )
    for working in ((), (frame("watch", 58),)):
        found = job(with_threads(exporter, *([working] if working else []), main=counter, cpu=0.5 if working else 0.0))
        assert (found.verdict, found.findings[0].code, found.findings[0].culprits) == ("hung", "HD304", (1,))
        assert "waiting for each other's locks" in found.findings[0].summary


def test_a_dataset_that_locks_itself_out_is_a_lock_and_no_slow_loader() -> None:
    """The rank loads its data itself (`num_workers=0`)."""
    loads = frame("_SingleProcessDataLoaderIter._next_data", 765, TORCH + "utils/data/dataloader.py", library=True)
    found = job(with_threads(main=(*AGAIN, loads, train(12))))
    finding = found.findings[0]
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD304", (1,))
    assert "MainThread holds `self.lock` and waits for it again" in finding.summary


def joining(target: int, timeout: str = "None") -> tuple[Frame, ...]:
    """The main thread holds a lock, and waits for the end of the thread at the address `target`."""
    variables = (local("self", "<Thread>", address=target), local("timeout", timeout))
    join = frame("Thread.join", 1119, "/usr/lib/python3.11/threading.py", library=True, locals=variables)
    return join, frame("learn", 64, source="t.join()", contexts=("stats_lock",)), train(12)


def started(target: int, *frames: Frame) -> tuple[Frame, ...]:
    """A thread that `threading` has started."""
    itself = (local("self", "<Thread>", address=target),)
    return *frames, frame("Thread._bootstrap", 1002, "/usr/lib/python3.11/threading.py", library=True, locals=itself)


DUMP = frame("dump", 61, source="with stats_lock:")


def test_a_thread_that_waits_for_the_end_of_one_that_needs_its_lock_never_continues() -> None:
    found = job(with_threads(started(7, DUMP), main=joining(7)))
    finding = found.findings[0]
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD304", (1,))
    assert "MainThread holds `stats_lock` at train.py:64 `t.join()`, where it waits for the end of thread serve-0" in (
        finding.summary
    )
    assert "move the join behind the `with` block" in finding.remedy


def test_a_join_of_another_thread_or_with_a_timeout_may_end() -> None:
    for main in (joining(8), joining(7, timeout="5")):
        assert job(with_threads(started(7, DUMP), main=main)).verdict == "waiting"


def test_a_thread_that_gives_up_its_lock_ends_the_join() -> None:
    gives_up = frame("dump", 61, source="if stats_lock.acquire(timeout=5):")
    assert job(with_threads(started(7, gives_up), main=joining(7))).verdict == "waiting"


def test_of_several_threads_inside_a_lock_none_is_its_holder() -> None:
    """A semaphore."""
    inside = frame("load", 70, source="time.sleep(1)", contexts=("stats_lock",))
    assert job(with_threads(started(7, DUMP), started(8, inside), main=joining(7))).verdict == "waiting"


def test_a_thread_that_needs_a_module_whose_import_waits_for_the_end_of_the_thread() -> None:
    def importlib(function: str, **variables: str) -> Frame:
        shown = tuple(local(name, text) for name, text in variables.items())
        return frame(function, 224, "<frozen importlib._bootstrap>", library=True, locals=shown)

    def threading(function: str) -> Frame:
        of = (local("self", "<Thread at 0x7>", address=7),)
        return frame(function, 1119, "/usr/lib/python3.11/threading.py", library=True, locals=of)

    def importing(module: str) -> tuple[Frame, ...]:
        outside = (importlib("_load_unlocked"), importlib("_find_and_load_unlocked", name=f"'{module}'"), train(12))
        return threading("Thread.join"), frame("<module>", 5, f"/home/me/{module}.py", source="t.join()"), *outside

    warms = (
        importlib("_ModuleLock.acquire"), importlib("_lock_unlock_module", name="'plug'"),
        frame("warm", 3, "/home/me/plug.py", source="import plug"), threading("Thread._bootstrap"),
    )  # fmt: skip
    found = job(with_threads(warms, main=importing("plug")))
    finding = found.findings[0]
    assert (found.verdict, finding.code, finding.culprits) == ("hung", "HD304", (1,))
    assert (
        "MainThread holds the lock of the import of plug at plug.py:5 `t.join()`, where it waits for the end"
        in finding.summary
    )
    assert finding.evidence[0].text.endswith("is importing plug at plug.py:5 `t.join()`")
    assert (finding.remedy or "").startswith("While a module is imported")
    other = job(with_threads(warms, main=importing("other")))
    assert "holds" not in other.findings[0].summary


@pytest.mark.parametrize(("lines", "each_other"), [((46, 46), False), ((46, 58), True)])
def test_threads_at_one_line_wait_for_one_lock(lines: tuple[int, int], each_other: bool) -> None:
    """A handler that failed did not release it: nobody holds it, and two more wait for it."""
    handlers = [(method("Handler.do_POST", line, "lock.acquire()"),) for line in lines]
    finding = job(with_threads(*handlers, main=(method("Handler.do_GET", lines[0], "lock.acquire()"),))).findings[0]
    assert finding.code == "HD304"
    assert ("waiting for each other's locks" in finding.summary) == each_other
    assert ("no thread releases the lock" in finding.summary) != each_other


def test_the_age_of_a_wait_at_a_lock_is_that_at_the_end_of_the_look() -> None:
    """The kernel's clocks say how long a thread had rested when the window began, the records are read at its end."""
    process = with_threads(main=(UPDATE, train(12)))
    assert isinstance(process.clocks, Clocks)
    main, gloo = process.clocks.threads
    at = (replace(main, idle_seconds=8.0, timed=False), gloo)
    process = replace(process, clocks=replace(process.clocks, threads=at, window_seconds=1.0))
    assert isinstance(process.stack, Stack)
    assert renewed_seconds_ago(process, process.stack.threads[0], ()) == 9.0
