"""Secrets planted in every place where a process can have one: none is in a snapshot, a page or an answer to an agent."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from hangbench.record import CORPUS
from hangdoc import codec, redact
from hangdoc.agents import tools
from hangdoc.agents.arguments import read
from hangdoc.agents.confined import Confined
from hangdoc.agents.looks import Looks
from hangdoc.commands import launches
from hangdoc.commands.hosts import Hosts
from hangdoc.preflight.plan import Card, NodeReport
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.views.detail import details
from hangdoc.redact import evidence, sentences, titles
from hangdoc.redact.fields import FIELDS
from hangdoc.render.html import page
from hangdoc.snapshot import (
    Clocks,
    Connections,
    Counter,
    Environment,
    Holder,
    Interpreter,
    KernelThread,
    Listener,
    Local,
    Process,
    Progress,
    PythonThread,
    Snapshot,
    Stack,
    Unavailable,
)
from tests.unit import builders

SHAPES = (
    "vR7k-Q2mx_Zp9w",
    "Tr0ub4dor&3x",
    "purple-monkey-dishwasher-lamp",
    "qzxkvwpmhd",
    "9f3kd83hs02k",
    "MySecret99Word",
)
"""A generated secret, two chosen ones, a passphrase, letters without vowels, an API key of lower case."""
DIGITS = "48392017"


def _frame(**more: Any) -> Process:
    return builders.rank(1, builders.frame("work", 5, **more))


def _local(name: str, text: str) -> Process:
    return _frame(locals=(Local(name=name, text=text),))


def _module(name: str, text: str) -> Process:
    return builders.rank(
        1, builders.train(5), interpreter=Interpreter(environment={}, globals=(Local(name=name, text=text),))
    )


def _line(line: str) -> Process:
    return _frame(source=line, context=f"def work():\n    x = 1\n    {line}\n    return x\n")


def _argv(*words: str) -> Process:
    return builders.rank(1, builders.train(5), argv=("python3", "train.py", *words))


def _child(*words: str) -> Process:
    return builders.helper(300, 101, name=words[0][:15], argv=words)


def _variable(name: str, value: str) -> Process:
    return builders.rank(1, builders.train(5), environment={name: value})


def _thread(name: str) -> Process:
    process = builders.rank(1, builders.train(5))
    assert isinstance(process.stack, Stack)
    assert isinstance(process.clocks, Clocks)
    python = PythonThread(tid=7, name=name, active=False, owns_gil=False, frames=(builders.frame("wait", 3),))
    kernel = KernelThread(tid=7, name=name[:15], state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0)
    clocks = replace(process.clocks, threads=(*process.clocks.threads, kernel))
    return replace(process, stack=replace(process.stack, threads=(*process.stack.threads, python)), clocks=clocks)


KINDS: dict[str, Callable[[str], Process]] = {
    # command lines of ranks
    "argv positional": lambda s: _argv(s),
    "argv positional after options": lambda s: _argv("--lr", "0.1", s, "--epochs", "3"),
    "argv unknown option": lambda s: _argv("--favourite", s),
    "argv unknown option equals": lambda s: _argv(f"--favourite={s}"),
    "argv hydra": lambda s: _argv(f"+model.favourite={s}"),
    "argv joined to a letter": lambda s: _argv(f"-p{s}"),
    "argv user and password": lambda s: _argv("-u", f"me:{s}"),
    "argv address": lambda s: _argv(f"redis://:{s}@cache:6379/0"),
    "argv path of an address": lambda s: _argv(f"https://hooks.example.com/services/{s}"),
    "argv query": lambda s: _argv(f"https://store/x?lr=1&expires={s}"),
    "argv json": lambda s: _argv(f'{{"note": "{s}", "lr": 1}}'),
    "argv list": lambda s: _argv("--override", f"optimizer.lr=0.1,logger.thing={s}"),
    "argv header": lambda s: _argv("--header", f"X-Custom: {s}"),
    "argv code": lambda s: _argv("-c", f"login('{s}')"),
    "argv known option": lambda s: _argv("--api-key", s),
    "argv of a title": lambda s: builders.rank(1, builders.train(5), argv=(f"trainer: {s} (epoch 3)",)),
    # other processes
    "child sshpass": lambda s: _child("sshpass", "-p", s, "ssh", "me@host"),
    "child curl": lambda s: _child("curl", "-u", f"u:{s}", "https://host/x"),
    "child curl data": lambda s: _child("curl", "-d", f"pw={s}", "https://host/x"),
    "child mysql": lambda s: _child("mysql", f"-p{s}", "-u", "root"),
    "child psql address": lambda s: _child("psql", f"postgres://u:{s}@db/x"),
    "child shell": lambda s: _child("bash", "-c", f"PGPASSWORD={s} psql -h db | tee log"),
    "child shell echo": lambda s: _child("sh", "-c", f"echo {s} | docker login --username me"),
    "child positional": lambda s: _child("/usr/bin/unlock", s),
    "child long option": lambda s: _child("rclone", "copy", f"--custom={s}", "/data/a", "remote:b"),
    "child python code": lambda s: _child("python3", "-c", f"import x; x.go('{s}')"),
    "child python script": lambda s: _child("python3", "/home/me/upload.py", s),
    "child git": lambda s: _child("git", "push", f"https://me:{s}@github.com/a/b"),
    "child java property": lambda s: _child("java", f"-Dthing={s}", "-jar", "/opt/a.jar"),
    # environments
    "variable of the user": lambda s: _variable("NOTE", s),
    "variable PGPASS": lambda s: _variable("PGPASS", s),
    "variable of an unknown service": lambda s: _variable("ACME_LICENCE", s),
    "variable with a list": lambda s: _variable("STORAGE", f"AccountName=a;Blob={s};"),
    "variable with arguments": lambda s: _variable("TRAIN_ARGS", f"--lr 1 --thing {s}"),
    "variable of torch": lambda s: _variable("TORCH_LOGS_HEADER", f"h={s}"),
    "variable set later": lambda s: builders.rank(
        1, builders.train(5), interpreter=Interpreter(environment={"LATE": s}, globals=())
    ),
    # variables of the program
    "local": lambda s: _local("x", f'"{s}"'),
    "local tested by a loop": lambda s: _frame(
        locals=(Local(name="answer", text=f'"{s}"'),), conditions=("answer != previous",)
    ),
    "local list": lambda s: _local("x", f'["a", "{s}"]'),
    "local tuple, as of a namedtuple": lambda s: _local("login", f'("me", "{s}")'),
    "local dataclass": lambda s: _local("config", f"Config(lr=0.1, apikey='{s}', user='me')"),
    "local field without a telling name": lambda s: _local("config", f"Config(lr=0.1, thing='{s}')"),
    "local key": lambda s: _local("table", f'{{"{s}": 1}}'),
    "local of a key": lambda s: _local("table", f'{{"thing": {{"name": "a", "value": "{s}"}}}}'),
    "local cut": lambda s: _local("x", f'["thing", "{s}...'),
    "local bytes": lambda s: _local("x", f"b'{s}'"),
    "module variable": lambda s: _module("THING", repr(s)),
    # source
    "source positional argument": lambda s: _line(f'client = connect("db.internal", "svc", "{s}")'),
    "source default argument": lambda s: _line(f'def go(a, b="{s}", *, c=3): pass'),
    "source keyword": lambda s: _line(f'go(thing="{s}")'),
    "source assignment": lambda s: _line(f"x = '{s}'"),
    "source table": lambda s: _line(f'ROWS = [("me", "{s}"), ("you", "b")]'),
    "source comment": lambda s: _line(f"go()  # it was {s} before"),
    "source f-string": lambda s: _line(f'url = f"{{base}}/{s}?x={{y}}"'),
    "source nested f-string": lambda s: _line(f'x = f"{{login("{s}")}}"'),
    "source bytes": lambda s: _line(f'go(b"{s}")'),
    "source comparison": lambda s: _line(f'if answer == "{s}": pass'),
    "source raw literal": lambda s: _line(f"go(r'{s}')"),
    "source joined literals": lambda s: _line(f'go("a" "{s}")'),
    "source docstring": lambda s: _line(f'"""Call it with {s}."""'),
    "source cut literal": lambda s: _line(f'go("{s}'),
    "condition": lambda s: _frame(conditions=(f"answer == {s!r}",)),
    "context": lambda s: _frame(contexts=(f"login('me', {s!r})",)),
    # names
    "thread": lambda s: _thread(s),
    "thread with a prefix": lambda s: _thread(f"upload-{s}"),
    "thread with a function": lambda s: _thread(f"Thread-1 ({s})"),
    "process title": lambda s: builders.rank(1, builders.train(5), name=f"w: {s}"[:15]),
    "tracer": lambda s: builders.rank(1, builders.train(5), tracer=s, tracer_pid=9),
    "holder": lambda s: builders.rank(1, builders.train(5), others_at_work=(Holder(pid=9, name=s, state="S"),)),
    "reason": lambda s: builders.rank(
        1, builders.train(5), data=Unavailable(reason=f"it failed (ValueError: invalid literal: '{s}')")
    ),
}  # fmt: skip
SHOWN_BY_NAME = {
    "argv known option": "argv", "variable PGPASS": "", "local dataclass": "", "child mysql": "", "argv address": "",
}  # fmt: skip
NUMBERS: dict[str, Callable[[str], Process]] = {
    "local": lambda s: _local("password", s),
    "local in a dict": lambda s: _local("x", f'{{"pin": {s}, "lr": 1}}'),
    "local field": lambda s: _local("x", f"Login(user=1, pin_code={s})"),
    "module variable": lambda s: _module("PIN", s),
    "counter": lambda s: builders.rank(1, builders.train(5), progress=Progress(counters=(
        Counter(name="password", function="f", file="/x.py", before=int(s), after=int(s)),))),
    "source assignment": lambda s: _line(f"password = {s}"),
    "source keyword": lambda s: _line(f"go(pin={s})"),
    "source call": lambda s: _line(f"set_pin({s})"),
    "source key": lambda s: _line(f'x = {{"pin": {s}}}'),
    "source default": lambda s: _line(f"def go(a, unlock_code: int = {s}): pass"),
    "source comparison": lambda s: _line(f"if pin == {s}: pass"),
    "text of digits": lambda s: _local("x", f'"{s}"'),
    "literal of digits": lambda s: _line(f'unlock("{s}")'),
    "option": lambda s: _argv("--pin", s),
    "child": lambda s: _child("sshpass", "-p", s, "ssh", "host"),
    "variable": lambda s: _variable("BACKUP_CODE", s),
}  # fmt: skip


def _run(process: Process) -> Snapshot:
    """A run whose rank 1 waits for rank 0, or for which a helper of rank 1 works."""
    others = (process,) if process.role == "rank" else (builders.rank(1, builders.train(5)), process)
    return builders.snapshot(builders.rank(0, *builders.c10d("all_reduce"), builders.frame("go", 7)), *others)


def _parts(secret: str) -> list[str]:
    """What must not be found: the secret, and its longer parts."""
    return [secret, *(part for part in secret.replace("_", "-").split("-") if len(part) > 6)]


def _leaks(text: str, secret: str) -> list[str]:
    return [part for part in _parts(secret) if part in text]


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_leaks(kind: str, secret: str) -> None:
    seen = _run(KINDS[kind](secret))
    kept = redact.snapshot(seen)
    assert not _leaks(msgspec.json.encode(kept).decode(), secret)
    assert redact.snapshot(kept) == kept


def test_they_are_as_many_as_were_tried() -> None:
    assert len(KINDS) + len(NUMBERS) >= 51
    for kind, plant in KINDS.items():  # without the filter, they would be stored
        assert any(secret[:9] in msgspec.json.encode(_run(plant(secret))).decode() for secret in SHAPES), kind


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("locals_", redact.LOCALS)
def test_no_number_with_the_name_of_a_secret_leaks(kind: str, locals_: redact.Locals) -> None:
    if locals_ == "all" and kind == "text of digits":
        return  # nothing shows that it is one
    assert DIGITS not in msgspec.json.encode(redact.snapshot(_run(NUMBERS[kind](DIGITS)), locals_)).decode()


@pytest.mark.parametrize("kind", SHOWN_BY_NAME)
def test_with_all_locals_a_name_still_shows_a_secret(kind: str) -> None:
    kept = msgspec.json.encode(redact.snapshot(_run(KINDS[kind](SHAPES[0])), "all")).decode()
    assert not _leaks(kept, SHAPES[0])


@pytest.mark.parametrize("kind", ["thread", "source positional argument", "argv positional", "child curl", "condition"])
def test_with_all_locals_only_variables_keep_more(kind: str) -> None:
    kept = msgspec.json.encode(redact.snapshot(_run(KINDS[kind](SHAPES[2])), "all")).decode()
    assert not _leaks(kept, SHAPES[2])


def test_counters_stay() -> None:
    counter = Counter(name="step", function="f", file="/x.py", before=4711, after=4711)
    seen = _run(builders.rank(1, builders.train(5), progress=Progress(counters=(counter,))))
    assert redact.snapshot(seen) == seen


@pytest.mark.parametrize(
    "name",
    [
        "MainThread", "Thread-1 (serve_forever)", "ThreadPoolExecutor-0_1", "QueueFeederThread", "pt_gloo_runloop", "TP_UV_loop",
        "jemalloc_bg_thd", "asyncio_0", "pt_nccl_watchdg", "snapshots", "Dummy-7", "rank0-writer",
    ],
)  # fmt: skip
def test_known_names_of_threads_stay(name: str) -> None:
    assert titles.thread(name) == name


@pytest.mark.parametrize("value", ["A", "A B", "S27", "x S27 y", " a", "3 4", "1:B"])
@pytest.mark.parametrize("named", ["token=", "token:", "password=", "worker-3 api_key=", "Thread-1 pin: "])
def test_all_that_follows_the_name_of_a_secret_belongs_to_it(named: str, value: str) -> None:
    """In the name of a thread, which has no quotes."""
    kept = titles.thread(named + value)
    assert kept == f"{named.rstrip()}<redacted>"
    assert titles.thread(kept) == kept


@pytest.mark.parametrize("secret", ["S14pw", "S14", "hunter", "S14-pw", "s1", "Tr0ub4dor&3x", "S14=pw", "abc"])
@pytest.mark.parametrize(
    "text", ['("mysql","-p{}")', '["mysql", "-p{}", "db"]', '"mysql -p{} db"', "'-p{}'", '{{"args": ["-p{}"]}}']
)
def test_with_all_locals_a_value_joined_to_its_option_is_none(text: str, secret: str) -> None:
    """As docs/privacy.md says."""
    assert secret not in redact.local("command", text.format(secret), keep_all=True)


def test_with_all_locals_options_stay() -> None:
    assert (
        redact.local("command", '("rm","-rf","-O3","-j16","-lm","-v")', keep_all=True)
        == '("rm","-rf","-O3","-j16","-lm","-v")'
    )


def test_threads_whose_names_are_not_kept_stay_apart() -> None:
    """The native stack of a thread is found by its name."""
    names = ("Xk3-one9", "Xk3-two9", "MainThread")
    threads = tuple(PythonThread(tid=n, name=name, active=False, owns_gil=False) for n, name in enumerate(names))
    stack = Stack(at_seconds=0.0, threads=threads)
    native = replace(stack, threads=threads[::-1])
    (kept,) = redact.snapshot(builders.snapshot(builders.rank(0, stack=stack, native=native))).hosts[0].processes
    assert isinstance(kept.stack, Stack)
    assert isinstance(kept.native, Stack)
    assert len({thread.name for thread in kept.stack.threads}) == 3
    by_tid = {thread.tid: thread.name for thread in kept.native.threads}
    assert by_tid == {thread.tid: thread.name for thread in kept.stack.threads}
    again = redact.snapshot(builders.snapshot(kept)).hosts[0].processes[0]
    assert again == kept


def test_different_literals_of_conditions_stay_different() -> None:
    north, south = '"north pole now"', '"south pole now"'
    code = f"if word == {north}:\n    a()\nelif word == {south}:\n    b()\nelif word == {north}:\n    c()\n"
    first, second, third = (line for line in redact.source(code).splitlines() if "if" in line)
    assert first.removeprefix("if") != second.removeprefix("elif")
    assert first.removeprefix("if") == third.removeprefix("elif")


# --- every field ---------------------------------------------------------------------------------------------------


def _structs(kind: Any, found: set[type]) -> set[type]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in found:
            found.add(kind)
            for field in msgspec.structs.fields(kind):
                _structs(field.type, found)
    else:
        for one in get_args(kind):
            _structs(one, found)
    return found


def test_every_field_with_text_is_declared_or_strictly_filtered() -> None:
    """A new field keeps nothing but words of the field, until it says what it is."""
    for kind in _structs(Snapshot, set()) - {Local}:
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        declared = FIELDS.get(kind, {})
        assert set(declared) <= set(fields), kind
        texts = {name for name, of in fields.items() if str in _flat(of)}
        assert texts <= set(declared), f"declare what {kind.__name__} holds in hangdoc/redact/fields.py"


def _flat(kind: Any) -> Iterator[Any]:
    yield kind
    for one in get_args(kind):
        yield from _flat(one)


def test_a_field_that_is_not_declared_keeps_nothing_but_plain_words() -> None:
    class New(msgspec.Struct, frozen=True):
        note: str
        more: tuple[str, ...] = ()

    filter_ = evidence._Filter((), keep_all=False)
    assert filter_.value(New("all_reduce", (SHAPES[2], "step"))) == New("all_reduce", ("<str>", "step"))


# --- the ways out --------------------------------------------------------------------------------------------------


def _everything(secret: str) -> Snapshot:
    """A run with many kinds at once."""
    lines = [kind for kind in KINDS if kind.startswith("source")]
    frames = [
        KINDS[kind](secret).stack for kind in [*lines, "local", "local tuple, as of a namedtuple", "local dataclass"]
    ]
    stacks = [stack.threads[0].frames[0] for stack in frames if isinstance(stack, Stack)]
    first = builders.rank(0, *builders.c10d("all_reduce"), *stacks, argv=KINDS["argv positional"](secret).argv)
    second = replace(_thread(f"upload-{secret}"), argv=KINDS["argv unknown option"]("other").argv, state="T")
    child = _child("curl", "-u", f"u:{secret}", "https://host/x")
    seen = builders.snapshot(first, second, child)
    variables = {"NOTE": secret, "MASTER_ADDR": "10.0.0.1"}
    processes = tuple(replace(one, environment=Environment(variables=variables)) for one in seen.hosts[0].processes)
    listener = Listener(port=29500, namespace="", pid=9, name="python3", argv=("python3", "serve.py", secret))
    host = replace(
        seen.hosts[0], processes=processes, problems=(f"the data probe failed (KeyError: '{secret}'): please report it",),
        connections=Connections(connections=(), listeners=(listener,)),
    )  # fmt: skip
    return replace(seen, hosts=(host,))


@pytest.mark.parametrize("secret", SHAPES)
def test_none_is_in_a_page_or_an_answer_to_an_agent(secret: str, tmp_path: Path) -> None:
    """Also if a bundle was written without a filter."""
    seen = _everything(secret)
    diagnosis, runs = examine(redact.snapshot(seen))
    assert not _leaks(page(diagnosis, details(diagnosis, runs)), secret)
    codec.write(seen, tmp_path / "raw.hangdoc")
    hosts = Hosts(hosts=None, via=None, ssh_option=(), remote_command="hangdoc", fanout=64, host_timeout=20.0)
    looks = Looks(Confined((tmp_path,)), hosts)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("open_bundle", {"path": "raw.hangdoc"}), ("rank_detail", {"rank": 0}), ("rank_detail", {"rank": 1}),
        ("compare_ranks", {"rank": 0, "other": 1}), ("what_was_not_seen", {}),
    ]  # fmt: skip
    for name, arguments in calls:
        tool = tools.find(name)
        answer = msgspec.json.encode(tool.run(looks, read(tool.takes, arguments))).decode()
        assert not _leaks(answer, secret), name


def test_none_is_in_what_preflight_sends() -> None:
    report = NodeReport(
        name="node1", machine=Unavailable(reason="x"), cards=(Card(name="eth0", wireless=False, speed_mbit=None, mtu=None),),
        versions={}, resolved={}, is_master=True,
        holder=Listener(port=1, namespace="", pid=1, name="python3", argv=("python3", "x.py", SHAPES[0])),
        port_error=None, environment=redact.environment({"NCCL_NET": "Socket", "NOTE": SHAPES[1]}),
        arguments=redact.argv(("--lr", "1", SHAPES[2])), data=(), left_over=(), attach=(), free_bytes=None, address=None,
        problems=(f"cannot read {SHAPES[3]}x1",),
    )  # fmt: skip
    kept = redact.node_report(report, {"MY_PASS": f"{SHAPES[3]}x1"}, ())
    for secret in (*SHAPES[:3], f"{SHAPES[3]}x1"):
        assert secret not in msgspec.json.encode(kept).decode()


def test_none_is_in_a_comparison_of_launch_lines() -> None:
    line = (
        f"MY_PASS={SHAPES[0]} torchrun --nproc-per-node=2 train.py --api-key {SHAPES[1]} --data s3://me:{SHAPES[2]}@b/x"
    )
    named = launches.parsed(line) + launches.parsed(line.replace("=2", "=4"))
    shown = msgspec.json.encode(launches.compared(named)).decode() + repr(named)
    for secret in SHAPES[:3]:
        assert secret not in shown


# --- speed ---------------------------------------------------------------------------------------------------------

FILTERS: dict[str, Callable[[str], object]] = {
    "text": redact.text, "source": redact.source, "sentence": sentences.sentence, "thread": titles.thread,
    "local": lambda value: redact.local("x", value), "quoted local": lambda value: redact.local("x", f'"{value}"'),
    "all locals": lambda value: redact.local("x", f'["{value}"]', True),
    "variable": lambda value: redact.variable("DATA_DIR", value),
    "place": lambda value: redact.variable("MASTER_ADDR", value), "argv": lambda value: redact.argv(("x", value)),
    "option": lambda value: redact.argv(("x", f"--{value}")), "value": lambda value: redact.argv(("x", "--foo", value)),
    "shell": lambda value: redact.command(("bash", "-c", value)), "title": lambda value: redact.command((value,)),
}  # fmt: skip
REPEATED = [
    "a", "A", "1", "_", "-", ".", "/", ":", "=", "@", "'", '"', "\\", "(", "[", "{", "<", " ", "\n", "#", ",", ";",
    "a=", "a:", "a.", "a ", "a-", "a1", "://", "=a", "\\'", "''", '""', "{}", "f'{", 'f"{', "a@", "a:b@", '"a":',
    "'a',", "Bearer ", "eyJ", "sk-", "AKIA", "hf_", "-----BEGIN PRIVATE KEY-----", " in ", "a(", "pin=", "a: b = ",
    "key=", "token:", "a, default=", '"--a" ',
]  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_is_linear_in_the_length_of_its_text(name: str) -> None:
    """300 kB take at most a little more than ten times as long as 30 kB: a second where a regular expression backtracks."""
    for piece in REPEATED:
        began = time.process_time()
        FILTERS[name](piece * (300_000 // len(piece)))
        assert time.process_time() - began < 5, piece


def test_a_recorded_run_is_filtered_in_milliseconds() -> None:
    """It is in every look, and in every poll of `top`."""
    seen = codec.read(CORPUS / "trainer_healthy.hangdoc")
    redact.snapshot(seen)
    began = time.process_time()
    for _ in range(10):
        redact.snapshot(seen)
    assert (time.process_time() - began) / 10 < 0.05
