"""Secrets go, whatever they are wrapped in; what a diagnosis reads stays."""

import ast
import json
import tracemalloc
from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hangdoc import redact
from hangdoc.observe.stacks.pyspy import parse
from hangdoc.redact import names_a_secret
from hangdoc.redact.patterns import random_looking
from hangdoc.redact.sentences import sentence
from hangdoc.redact.titles import program
from hangdoc.snapshot import (
    Environment,
    Frame,
    Host,
    Interpreter,
    Launch,
    Local,
    Loop,
    Process,
    PythonThread,
    RankIdentity,
    Snapshot,
    Stack,
)
from tests.unit import builders

SECRET = "zk7Qw-hidden-41"


@pytest.mark.parametrize(
    "name",
    [
        "MY_PASS", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "SSHPASS", "apiKey", "--api-key", "OPENAI_API_KEY",
        "HF_TOKEN", "hf-token", "wandb.api_key", "cfg.password", "self.client_secret", "AWS_SECRET_ACCESS_KEY",
        "AccountKey", "SharedAccessKey", "X-Auth-Token", "Authorization", "Set-Cookie", "sig", "X-Amz-Signature",
        "authkey", "SENTRY_DSN", "GITHUB_PAT", "connection_string", "passphrase", "dbPassword", "hftoken",
        "credentials", "slack_webhook", "private_key", "key", "pin",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "RANK", "TOKENIZERS_PARALLELISM", "tokenizer", "author", "num_tokens", "max_tokens", "tokens_per_step",
        "token_ids", "pin_memory", "forward_pass", "pass_idx", "keys", "monkey", "MASTER_ADDR", "NCCL_SOCKET_IFNAME",
        "signal", "design", "compass", "bypass", "path", "pattern", "insights", "assign", "pinned", "optimizer",
    ],
)  # fmt: skip
def test_names_of_other_things(name: str) -> None:
    assert not names_a_secret(name)


LOOKS = [
    "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AIzaSyA1234567890abcdefghijklmnopqrstu",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "github_pat_11ABCDEFG0abcdefghijkl_mnop", "glpat-abcDEF123456ghiJKL78",
    "npm_aB3dE5gH7jK9mN1pQ3sT5vW7yZ", "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345",
    "0123456789abcdef0123456789abcdef01234567", "sk-proj-abc123DEF456ghi789", "sk-ant-api03-abc123DEF456",
    "xoxb-123456789012-abcdefABCDEF", "hooks.slack.com/services/T000/B000/XXXXXXXX", "pypi-AgEIcHlwaS5vcmcCJDU3abc",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "dapi0123456789abcdef0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP", "abc8Q~defghijklmnopqrstuvwxyz0123456789",
    "https://me:pa5sw0rd@host/x", "postgresql://me:pa5sw0rd@db:5432/x", "Authorization: Bearer abc.def.ghi",
    "-H Authorization: Basic dXNlcjpwYXNz", "https://x.blob.core.windows.net/c?sv=2022&sig=aBcD%2B12&se=1",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFy==;", "Server=db;Uid=me;Pwd=geheim;",
    "host=db user=me password=geheim", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----",
    "nvapi-abcDEF1234567890-xyz",
]  # fmt: skip


@pytest.mark.parametrize("value", LOOKS)
def test_looks_go_from_every_kind_of_text(value: str) -> None:
    kept = [
        redact.text(value),
        redact.variable("NOTE", value),
        redact.local("x", json.dumps(value)),
        redact.local("x", json.dumps({"a": [value]}), True),
        redact.source(f"x = {value!r}"),
        redact.source(f"# see {value}") if "\n" not in value else "",
        *redact.argv(("train.py", value)),
    ]
    part = max(_parts(value), key=len)
    for text in kept[:-2] + kept[-1:]:
        assert part not in text, text


def _parts(value: str) -> list[str]:
    """What of a planted text is the secret itself."""
    for known in ("pa5sw0rd", "abc.def.ghi", "dXNlcjpwYXNz", "aBcD%2B12", "Zm9vYmFy", "geheim", "T000/B000/XXXXXXXX"):
        if known in value:
            return [known]
    return [value[-12:]] if "BEGIN" not in value else ["abc"]


@pytest.mark.parametrize(
    "value",
    [
        "0", "cuda:0", "float16", "bfloat16", "eth0", "enp0s31f6", "10.0.0.1:29500", "node17.cluster.local",
        "all_reduce", "torch.distributed.run", "/data/shards/part-00001.parquet",
        "ip-10-0-0-1.us-west-2.compute.internal", "--lr=0.1", "llama-7b", "2024-11-22T10:15:00", "tcp://127.0.0.1:29500",
        "file:///shared/run/rendezvous", "ThreadPoolExecutor", "snapshots",
    ],
)  # fmt: skip
def test_what_is_plain_stays(value: str) -> None:
    assert redact.argv(("x", value)) == ("x", value)
    assert redact.argv(("x", "--model", value)) == ("x", "--model", value)
    assert redact.source(f"x = '{value}'") == f"x = '{value}'"
    assert redact.local("x", f'"{value}"') == f'"{value}"'
    assert redact.variable("NCCL_ALGO", value) == value
    assert redact.variable("NOTE", value) == redact.NOT_STORED


@pytest.mark.parametrize(
    "value",
    ["correct-horse-battery", "hunter2", "swordfish", "Tr0ub4dor&3", "what the user asked", "483920117", "qzxkv"],
)
def test_what_is_not_plain_goes(value: str) -> None:
    assert value not in redact.argv(("x", value))
    assert value not in redact.argv(("x", "--favourite", value)) or value.isdigit()  # a number may be a setting
    assert redact.source(f"x = f({value!r}, 1)") == "x = f('<str>', 1)"
    assert redact.local("x", f'"{value}"') == '"<str>"'
    assert redact.variable("NOTE", value) == redact.NOT_STORED


@pytest.mark.parametrize(
    "text",
    [
        "3", "-1.5e-3", "None", "True", "[]", "{}", "torch.bfloat16", "float32[64, 8]", "int64[]", "P2POp(isend, 1)",
        "<list of 3>", "+bigint", "<torch._C._distributed_c10d.ProcessGroup at 0x7f655920dab0>",
        '{"src": 0, "group": <ProcessGroup at 0x7f>}', '["-u", "/a/train.py"]', "(<Tensor at 0x7f>, <Tensor at 0x7e>)",
        '"bfloat16"', "'eth0'", "?", "[1, 2, ...]",
    ],
)  # fmt: skip
def test_what_the_rules_read_of_variables_stays(text: str) -> None:
    for name in ("x", "tokens", "dst", "nprocs", "loader.dataset.paths"):
        assert redact.local(name, text) == text or ("'" in text or '"' in text)
    assert redact.local("x", text) == text


def test_a_number_stays_under_a_name_that_is_also_a_counters() -> None:
    assert redact.local("tokens", "4096") == "4096"
    assert redact.local("password", "4096") == redact.REDACTED


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('["--api-key", "§", "--lr", "0.1"]', '["--api-key", "<redacted>", "--lr", "0.1"]'),
        ('{"Authorization": "Bearer §"}', '{"Authorization": "<redacted>"}'),
        ('{"db": {"password": ["§", 1], "port": 5432}}', '{"db": {"password": ["<redacted>", 1], "port": 5432}}'),
        ('Config(password="§", lr=0.1)', 'Config(password="<redacted>", lr=0.1)'),
        ('[("PASSWORD", "§")]', '[("<str>", "<redacted>")]'),
        ('{"password": "§...', '{"password": "<redacted>'),
        ('["--api-key", "§...', '["--api-key", "<redacted>'),
        ('["https://me:§@host/x"]', '["https://<redacted>@host/x"]'),
        ('["{"token": "§"}", 1]', None),  # py-spy does not escape quotes
        ('"{"token": "§"}"', '"<str>"'),
        ('"what the user asked §"', '"<str>"'),
        (
            f'"file:///home/me/{"experiments/" * 5}rendezvous_042655"',
            f'"file:///home/me/{"experiments/" * 5}rendezvous_042655"',
        ),
    ],
)
def test_variables(text: str, kept: str | None) -> None:
    found = redact.local("x", text.replace("§", SECRET))
    assert SECRET not in found
    assert kept in (None, found)
    assert SECRET not in redact.local("x", text.replace("§", SECRET), True) or "asked" in text


def test_a_secret_option_of_the_launcher() -> None:
    """As py-spy shows torchrun's own frame."""
    raw = [{"thread_name": "MainThread", "frames": [{"name": "main", "filename": "run.py", "line": 1, "locals": [
        {"name": "args", "repr": f'["--nproc-per-node=2", "train.py", "--api-key", "{SECRET}", "--lr", "0.1"]'}]}]}]  # fmt: skip
    (thread,) = parse(msgspec.json.encode(raw), 0.0).threads
    kept = redact.snapshot(_snapshot(Stack(at_seconds=0, threads=(thread,))))
    assert SECRET.encode() not in msgspec.json.encode(kept)
    assert b"--nproc-per-node=2" in msgspec.json.encode(kept)


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("--token=§", "--token=<redacted>"), ("TOKEN=§", "TOKEN=<redacted>"),
        ("+wandb.api_key=§", "+wandb.api_key=<redacted>"), ("--env=TOKEN=§", "--env=TOKEN=<redacted>"),
        ('{"token": "§", "lr": 1}', '{"token": "<redacted>", "lr": 1}'),
        ("https://h/x?token=§&lr=1", "https://h/x?<str>"),
        ("Authorization: Bearer §", "<str> <str> <str>"),
        ("run --api-key § --lr 1", "run --api-key <redacted> --lr 1"),
        ("-p§", "-p<redacted>"), ("§", "<str>"), ("note=§", "note=<str>"),
        ("--tokens=/data/tok.bin", "--tokens=/data/tok.bin"), ("--max-tokens=4096", "--max-tokens=4096"),
    ],
)  # fmt: skip
def test_words_of_a_command_line(word: str, kept: str) -> None:
    assert redact.argv(("train.py", word.replace("§", SECRET))) == ("train.py", kept)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "1"), ("TOKENIZERS_PARALLELISM", "false"), ("MASTER_ADDR", "node0"), ("NANOCHAT_DATA_DIR", "/data/shards"),
        ("eval_tokens", "4096"), ("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.1"), ("PWD", "/home/me/run"),
        ("TORCHELASTIC_RUN_ID", "3f1c2d4e-1111-2222-3333-abcdefabcdef"), ("SLURM_JOB_ID", "4711"),
        ("GLOO_SOCKET_IFNAME", "vbe76fa0"), ("GRAD_ACCUM", "4"),
    ],
)  # fmt: skip
def test_variables_of_an_environment_that_stay(name: str, value: str) -> None:
    assert redact.variable(name, value) == value


def test_options_in_two_words() -> None:
    line = "x.py --api-key abc -token def --eval-tokens 40 -u me:abc --lr 1 --auth --data /d/x"
    words = redact.argv(tuple(line.split()))
    assert words == ("x.py", "--api-key", "<redacted>", "-token", "<redacted>", "--eval-tokens", "40", "-u", "me:<redacted>",
                     "--lr", "1", "--auth", "--data", "/d/x")  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        'cfg.password = "§"', 'login(token="§", user="me")', "wandb.login('§')", 'password: str = "§"',
        'os.environ["MY_PASS"] = "§"', 'cfg["db"]["password"] = "§"', 'os.environ.setdefault("API_KEY", "§")',
        'os.getenv("API_KEY", default="§")', 'p.add_argument("--api-key", type=str, default="§")',
        'headers = {"Authorization": f"Bearer §"}', 'url = f"https://me:§@{host}/x"', 'x = f"{base}?sig=§&x={y}"',
        'if password == "§": pass', 'if "§" == cfg.token: pass', 'if token in ("§", "b"): pass', 'auth = ("me", "§")',
        "x = os.environ.get('A') # password: §", 'password = ("a"\n            "§")', 'secrets = ["a", "§"]',
        "run(['--api-key', '§'])", 'token = os.environ.get("HF_TOKEN") or "§"', 'connect("host=db password=§")',
        "api_key = b'§'", 'password = """§"""', "set_password('§')", 'x = {"api_key": "§",\n', '    "password": "§"}',
        "password = '§",
    ],
)  # fmt: skip
def test_source(line: str) -> None:
    found = redact.source(line.replace("§", SECRET))
    assert SECRET not in found
    assert redact.source(found) == found
    assert found.count("\n") == line.count("\n")


@pytest.mark.parametrize(
    "line",
    [
        'print(f"loss {loss:.3f} step {step}")', "dist.all_reduce(t, op='sum')", 'token = os.environ["HF_TOKEN"]',
        "key: str = None", 'if rank == 0 and mode == "train":', "for key, value in state.items():",
        'tokens = tokenizer(text, return_tensors="pt")', 'rpc.rpc_sync("trainer1", f)', "with torch.autocast('cpu', dtype=t):",
        "raise ValueError(name)", "x = f'{{}}'",
        'dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500")', 'store.get("rank0/ready")',
        'x = "config', "'''", '"', "\\",
    ],
)  # fmt: skip
def test_code_stays_code(line: str) -> None:
    assert redact.source(line) == line


def test_code_with_a_key_in_many_lines_keeps_its_lines() -> None:
    block = f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\nxx\n-----END RSA PRIVATE KEY-----"
    code = f'a = 1\nkey = """{block}"""\nfor i in range(3):\n    pass\n'
    found = redact.source(code)
    assert SECRET not in found
    assert found.count("\n") == code.count("\n")
    assert [type(node).__name__ for node in ast.parse(found).body] == ["Assign", "Assign", "For"]


def test_what_is_known_by_name_goes_everywhere() -> None:
    frame = Frame(
        function="f",
        file=f"/tmp/{SECRET}/x.py",
        line=1,
        source=f"go('{SECRET}')",
        locals=(Local(name="k", text=f'"{SECRET}"'),),
    )
    seen = _snapshot(Stack(at_seconds=0, threads=(PythonThread(tid=1, name="t", active=True, owns_gil=False, frames=(frame,)),)),
                     variables={"MY_PASS": SECRET}, cwd=f"/tmp/{SECRET}", problems=(f"cannot read /x/{SECRET}",))  # fmt: skip
    for locals_ in redact.LOCALS:
        assert SECRET.encode() not in msgspec.json.encode(redact.snapshot(seen, locals_))


def test_what_a_variable_is_named_after_goes_from_others() -> None:
    frame = Frame(
        function="f",
        file="/x.py",
        line=1,
        locals=(Local(name="password", text=f'"{SECRET}"'), Local(name="k", text=f'"{SECRET}"')),
    )
    thread = PythonThread(tid=1, name="t", active=True, owns_gil=False, frames=(frame,))
    kept = redact.snapshot(_snapshot(Stack(at_seconds=0, threads=(thread,))), "all")
    assert SECRET.encode() not in msgspec.json.encode(kept)


def test_the_name_of_a_run_may_look_random() -> None:
    """Ranks are told together by it, also where only its digest is known."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    launch = Launch(tool="torchrun", run_id=commit)
    identity = RankIdentity(rank=0, source="environment", run_id=commit)
    process = msgspec.structs.replace(builders.rank(0, builders.train(5)), launch=launch, identity=identity)
    (kept,) = redact.snapshot(builders.snapshot(process)).hosts[0].processes
    assert (kept.launch, kept.identity) == (launch, identity)


def test_a_password_that_is_a_word_takes_no_word_away() -> None:
    frame = Frame(function="all_reduce", file="/x/train.py", line=1, source="dist.all_reduce(t)")
    stack = Stack(at_seconds=0, threads=(PythonThread(tid=1, name="t", active=True, owns_gil=False, frames=(frame,)),))
    kept = redact.snapshot(_snapshot(stack, variables={"MY_PASS": "all_reduce"}))
    assert b"dist.all_reduce(t)" in msgspec.json.encode(kept)


def _snapshot(
    stack: Stack, variables: dict[str, str] | None = None, cwd: str = "/", problems: tuple[str, ...] = ()
) -> Snapshot:
    process = Process(
        pid=1, ppid=0, role="rank", name="python", argv=("python", "train.py"), state="S", started_seconds_ago=1.0, cwd=cwd,
        stack=stack, environment=Environment(variables=variables or {}),
        interpreter=Interpreter(environment={}, globals=(Local(name="api_key", text="'x1'"),)),
    )  # fmt: skip
    host = Host(
        name="h",
        taken_at="2026-01-01T00:00:00.000+00:00",
        window_seconds=1,
        elapsed_seconds=1,
        processes=(process,),
        problems=problems,
    )
    return Snapshot(hangdoc="x", hosts=(host,))


# --- any text ------------------------------------------------------------------------------------------------------

_PIECES = st.sampled_from(
    [
        "password", "token", "api_key", "=", ":", " ", '"', "'", "\\", "{", "}", "[", "]", "(", ")", ",", "\n", "--",
        "Bearer ", "https://", "@", "#", "?", "&", "/", ";", "abc1", SECRET, "ghp_", "-----BEGIN PRIVATE KEY-----",
        "<redacted>", "<str>", "...", "é", "\0", '"""', "f", "0x7f", "lr",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=30).map("".join))
FILTERS: list[Callable[[str], str]] = [
    redact.text,
    redact.source,
    lambda value: redact.local("x", value),
    lambda value: redact.local("x", value, True),
    lambda value: redact.local("token", value),
    lambda value: redact.variable("X", value),
    lambda value: redact.variable("MY_PASS", value),
    lambda value: "\0".join(redact.argv(("x", *value.split("\0")))[1:]),
]


@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example('"')
@example("'\\")
@example("a=" * 3000)
@example('{"' * 3000)
def test_no_text_makes_a_filter_raise(value: str) -> None:
    for number, filtered in enumerate(FILTERS):
        assert isinstance(filtered(value), str), number


NESTED = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(["float16", "cuda:0", "some words"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["lr", "model", "name", "x"]), inner, max_size=3),
    ),
    max_leaves=8,
)
SECRETS = st.from_regex(r"[A-Za-z0-9_-]{5}!?[A-Za-z0-9]{9}", fullmatch=True)


def _planted(value: object, secret: str) -> list[object]:
    """A nested value with a secret at each of the places where people put them."""
    return [
        {"password": secret, "rest": value}, {"cfg": {"api_key": [secret, value]}}, ["--api-key", secret, value],
        {"headers": {"Authorization": f"Bearer {secret}"}, "v": value}, [value, ("AUTH_TOKEN", secret)],
        {"url": f"https://me:{secret}@h/x", "v": value}, [f"--token={secret}", value],
        {"v": [value, {"db": {"passwd": secret}}]}, {"v": json.dumps({"token": secret, "v": 1})},
        [f"https://h/x?sig={secret}&a=1"],
    ]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(NESTED, SECRETS, st.integers(0, 9))
def test_a_secret_goes_from_any_nesting(value: object, secret: str, place: int) -> None:
    planted = _planted(value, secret)[place]
    prints = [repr(planted), repr(planted).replace('"', "'"), _as_pyspy_prints(planted)]
    for printed in [*prints, *(text[:-1] for text in prints)]:
        for every in (False, True):
            kept = redact.local("x", printed, every)
            assert secret not in kept, (printed, kept)
            assert secret not in redact.local("x", kept, every)
    words = redact.argv(("x", json.dumps(planted)))
    assert secret not in words[1]


def _as_pyspy_prints(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_as_pyspy_prints(k)}: {_as_pyspy_prints(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        a, b = "[]" if isinstance(value, list) else "()"
        return a + ", ".join(map(_as_pyspy_prints, value)) + b
    if isinstance(value, str):
        return '"' + value.replace("'", '\\"').replace("\n", "\\n") + '"'
    return str(value)


@settings(max_examples=80, deadline=None)
@given(NESTED, SECRETS, st.integers(0, 9), st.integers(0, 300))
def test_filters_are_idempotent(value: object, secret: str, place: int, cut: int) -> None:
    planted = _planted(value, secret)[place]
    for printed in (repr(planted), repr(planted)[:cut], json.dumps(planted), _as_pyspy_prints(planted)):
        for number, filtered in enumerate(FILTERS):
            once = filtered(printed)
            assert filtered(once) == once, (number, printed)


@pytest.mark.parametrize(
    ("folder", "kept"),
    [("trial23a", "trial23a"), ("model2024", "model2024"), ("trial2b3c", "<redacted>"), ("xkqzw23a", "<redacted>"),
     ("a1b2c3d4", "<redacted>")],
)  # fmt: skip
def test_a_word_with_a_number_in_a_path_is_not_random(folder: str, kept: str) -> None:
    for word in (f"/root/{folder}/bin/python", f"/root/{folder}/t.py", f"/root/{folder}/data"):
        assert redact.path(word) == word.replace(folder, kept)


def test_what_looks_random() -> None:
    for name in ("ProcessGroupGloo", "TransformerDecoderLayer", "float16", "20241122T101500", "llama2"):
        assert not random_looking(name)
    for key in ("9f8a7b6c5d4e3f2a1b", "aB3dE5gH7jK9mN1pQ3sT5vW7yZ"):
        assert random_looking(key)


def test_a_snapshot_of_built_ranks_stays_as_it_is() -> None:
    snapshot = builders.snapshot(builders.rank(0, builders.train(5)), builders.rank(1, *builders.backward()))
    assert redact.snapshot(snapshot) == snapshot


def test_frames_that_were_seen_before_show_what_is_tested_now() -> None:
    """What is left of a frame is kept for the next look, as long as the program tests the same variables."""
    frame = Frame(function="f", file="/x.py", line=1, locals=(Local(name="start", text="'warm'"),))

    def look(*more: Frame) -> str:
        thread = PythonThread(tid=1, name="t", active=True, owns_gil=False, frames=(frame, *more))
        stack = redact.snapshot(_snapshot(Stack(at_seconds=0, threads=(thread,)))).hosts[0].processes[0].stack
        assert isinstance(stack, Stack)
        return stack.threads[0].frames[0].locals[0].text

    tests = Frame(function="g", file="/x.py", line=2, conditions=("start == 1",))
    untested = look()
    assert look() == untested
    assert look(tests) != untested
    assert look() == untested


def test_who_looks_again_and_again_keeps_the_texts_of_the_last_looks_only() -> None:
    """Each look of a watch has values that no look before had."""

    def look(number: int) -> None:
        values = tuple(Local(name="sizes", text=f"[{number}, {at}, 0, 0]") for at in range(500))
        frame = Frame(function="f", file="/x.py", line=1, locals=values)
        thread = PythonThread(tid=1, name="t", active=True, owns_gil=False, frames=(frame,))
        redact.snapshot(_snapshot(Stack(at_seconds=0, threads=(thread,))))

    tracemalloc.start()
    try:
        for number in range(5):
            look(number)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(5, 45):
            look(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 500_000


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("vllm", "serve", "meta-llama/Llama-3.1-8B"), "meta-llama/Llama-3.1-8B"),
        (("vllm", "serve", "/hub/models--Qwen--Qwen2.5-0.5B/snapshots/7ae557604adf67be50417f59c2c2f167def9a775"),
         "/hub/models--Qwen--Qwen2.5-0.5B/snapshots/<redacted>"),
        (("python", "x.py", "--served-model-name", "tiny2-v3"), "tiny2-v3"),
        (("python", "x.py", "--model-path", "two words"), redact.NOT_STORED),
        (("ray::AcmeWorker.update_actor",), "ray::AcmeWorker.update_actor"),
        (("VLLM::Worker_DP0_PP1_PCP0_TP0_EP0",), "VLLM::Worker_DP0_PP1_PCP0_TP0_EP0"),
        (("sglang::scheduler_DP0_PP1_TP0",), "sglang::scheduler_DP0_PP1_TP0"),
    ],
)  # fmt: skip
def test_what_names_a_served_model_and_its_processes_is_kept(words: tuple[str, ...], shown: str) -> None:
    kept = redact.argv(words)
    assert kept[-1] == shown
    assert redact.argv(kept) == kept


@pytest.mark.parametrize(("name", "shown"), [("gdb", "gdb"), ("cc1plus", "cc1plus"), ("zqxwvut", "<str>")])
def test_programs_whose_names_do_not_look_like_words(name: str, shown: str) -> None:
    assert program(name) == shown


@pytest.mark.parametrize("made", ["0_2f1eau", "5mfsfngg", "abcdefgh", "a1b2c3d4"])
def test_folders_of_torchrun_are_shown_alike_whether_or_not_their_names_look_random(made: str) -> None:
    name, shown = "TORCHELASTIC_ERROR_FILE", f"<redacted {sha256(made.encode()).hexdigest()[:4]}>"
    found = redact.variable(name, f"/tmp/torchelastic_{made}/none_{made}/attempt_0/1/error.json")
    assert found == f"/tmp/torchelastic_{shown}/none_{shown}/attempt_0/1/error.json"
    given = redact.variable(name, f"/logs/my_run_{made}/attempt_0/1/error.json")
    assert given == f"/logs/my_run_{shown}/attempt_0/1/error.json"
    assert [redact.variable(name, path) for path in (found, given)] == [found, given]


@pytest.mark.parametrize(
    "text",
    [
        "cannot open {}: no such file",
        "cannot open ({}), no such file",
        "no such file: '{}'",
        "the log folder is file://{}",
    ],
)
def test_a_sentence_keeps_the_folders_of_launchers(text: str) -> None:
    """The space of `<redacted 3f2a>` ended a word, of which nothing stayed."""
    for place in ("/tmp/torchelastic_f_srnitu", "/tmp/torchelastic_f_srnitu/none_1wr87cws/attempt_0/0/error.json"):
        once = sentence(text.format(place))
        assert once == text.format(redact.path(place)) == sentence(once)


@pytest.mark.parametrize("text", ["<redacted 1234>, <redacted> and <str>.", "(<redacted 1234>) is `<str>`"])
def test_what_was_filtered_in_a_sentence_stays(text: str) -> None:
    assert sentence(text) == text


def test_an_address_of_a_file_is_filtered_once() -> None:
    once = redact.variable(
        "TORCHELASTIC_ERROR_FILE", "file:///tmp/torchelastic_f_srnitu/none_1wr87cws/attempt_0/0/e.json"
    )
    assert once.startswith("file:///tmp/torchelastic_<redacted ")
    assert redact.variable("TORCHELASTIC_ERROR_FILE", once) == once


def test_the_folders_of_two_launchers_stay_two() -> None:
    """One value was shown for the ranks of both."""
    paths = [f"/tmp/torchelastic_{made}/none_{made}/attempt_0/0/error.json" for made in ("f_srnitu", "1wr87cws")]
    assert len({redact.variable("TORCHELASTIC_ERROR_FILE", path) for path in paths}) == 2


@pytest.mark.parametrize(
    "secret", ["pass_<redacted 3f2a>word=hunter2", "k3Jq9Zt7Lm2Xw8Rv<redacted 3f2a>", "<redacted 3f2a> hunter2 pw"]
)
def test_a_part_of_a_path_is_filtered_around_what_was(secret: str) -> None:
    kept = redact.path(f"/a/{secret}/b")
    assert "hunter2" not in kept and "k3Jq9Zt7Lm2Xw8Rv" not in kept


def test_settings_of_a_loop_keep_the_names_of_the_variables() -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    loop = Loop(line=1, end_line=9, header="for x in y", settings=("zxqvkk", secret))
    seen = redact.snapshot(builders.snapshot(builders.rank(0, builders.frame("main", 2, loops=(loop,)))))
    stack = seen.hosts[0].processes[0].stack
    assert isinstance(stack, Stack)
    assert stack.threads[0].frames[0].loops[0].settings == ("zxqvkk", "<redacted>")
