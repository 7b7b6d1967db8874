"""Secrets planted everywhere in a frozen run: none is in what hangdoc stores, prints or sends."""

import gzip
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.watched import PROGRAMS, Watched, running

pytestmark = [
    pytest.mark.live,
    pytest.mark.usefixtures("can_attach"),
    pytest.mark.xdist_group("secrets"),  # they share one run
]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
RAW = (
    "import sys; from hangdoc import redact; redact.snapshot = lambda seen, locals_: seen; redact.source = lambda code: code; "
    "from hangdoc.cli.main import main; sys.argv[0] = 'hangdoc'; main()"
)
"""hangdoc without its gate: what it would store if nobody took care."""
PROMPT = b"what the user asked in confidence"
LOOKS = {
    "local_github": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "folder": "glpat-abcDEF123456ghiJKL78",
    "odd_variable": "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345",
    "odd_argument": "sk-proj-abc123DEF456ghi789jkl",
}
UNSEEN = {"local_dataclass", "local_object", "local_json", "global_nested"}
"""Of objects and of containers at module level, numbers and lengths are read; py-spy cuts what lies deep."""


def _secret(name: str) -> str:
    return LOOKS.get(name, f"Pl4nted-{name.replace('_', '')}-77")


def _plant(text: str, planted: set[str]) -> str:
    def secret(match: re.Match[str]) -> str:
        planted.add(match[1])
        return _secret(match[1])

    return re.sub(r"@(\w+)@", secret, text)


KEPT_WITH_ALL = {"local_key", "local_namedtuple", "local_plain", "local_value"}
"""Neither their names nor their forms show what they are."""
Frozen = tuple[Watched, dict[str, bytes]]
"""The run, and every secret by where it was planted."""


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory, can_attach: None) -> Iterator[Frozen]:
    """One run for all tests that look at it from outside."""
    with _started(tmp_path_factory.mktemp("run")) as started:
        yield started


@contextmanager
def _started(around: Path, **more: str) -> Iterator[Frozen]:
    planted: set[str] = set()
    folder = around / _plant("@folder@", planted)
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(_plant((PROGRAMS / "with_secrets.py").read_text(), planted))
    variables = {
        "MY_PASS": "@environment_pass@", "WANDB_API_KEY": "@environment_key@", "DATABASE_URL": "postgresql://me:@environment_url@@db/x",
        "EXTRA": '{"client_secret": "@environment_json@"}',
        "PLAIN_NOTE": "@environment_plain@", "PGPASS": "@environment_pgpass@",
        "STORAGE": "AccountName=a;AccountKey=@environment_account@;", "NOTE": "@odd_variable@",
    }  # fmt: skip
    arguments = [
        "--api-key", "@argument_next@", "--password=@argument_equals@", "-token", "@argument_dash@", "MY_TOKEN=@argument_word@",
        "+wandb.api_key=@argument_hydra@", '{"auth": {"token": "@argument_json@"}}', "https://store/x?lr=1&sig=@argument_signature@",
        "https://me:@argument_login@@host/x", "--header", "Authorization: Bearer @argument_header@", "@odd_argument@",
        "@argument_positional@", "--thing", "@argument_plain@", "-p@argument_letter@",
        "--lr", "0.1",
    ]  # fmt: skip
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    command += [_plant(word, planted) for word in arguments]
    chosen = {name: _plant(value, planted) for name, value in variables.items()}
    with running(folder, *command, **chosen, **more) as run:
        run.wait_for("ready", 2, 90)
        yield run, {name: _secret(name).encode() for name in sorted(planted)}


def _hangdoc(*words: str, raw: bool = False) -> bytes:
    program = [sys.executable, "-c", RAW] if raw else [HANGDOC]
    done = subprocess.run([*program, *words], capture_output=True, check=False, timeout=400)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.stdout + done.stderr


def _found(content: bytes, planted: dict[str, bytes]) -> set[str]:
    return {name for name, secret in planted.items() if secret in content}


def test_without_the_gate_they_would_be_stored(frozen: Frozen, tmp_path: Path) -> None:
    run, planted = frozen
    _hangdoc("snapshot", "--pid", str(run.launcher.pid), "-o", str(tmp_path / "raw"), raw=True)
    assert len(planted) >= 50
    assert set(planted) - _found(gzip.decompress((tmp_path / "raw").read_bytes()), planted) <= UNSEEN


@pytest.mark.parametrize("locals_", ["used", "all"])
def test_none_is_in_a_bundle_a_document_or_a_page(frozen: Frozen, tmp_path: Path, locals_: str) -> None:
    run, planted = frozen
    bundle, page = tmp_path / "bundle", tmp_path / "page.html"
    document = _hangdoc(
        "diagnose",
        "--pid",
        str(run.launcher.pid),
        "--locals",
        locals_,
        "--save",
        str(bundle),
        "--html",
        str(page),
        "--json",
    )
    content = gzip.decompress(bundle.read_bytes())
    text = _hangdoc("diagnose", str(bundle))
    for made in (content, document, page.read_bytes(), text):
        assert _found(made, planted) <= (KEPT_WITH_ALL if locals_ == "all" and made is content else set())
    assert (PROMPT in content) == (locals_ == "all")
    assert b'"HD202"' in document
    assert b"float16" in content  # what may be of use is there
    assert b"--lr" in content


def test_none_is_in_what_a_fleet_is_sent(frozen: Frozen) -> None:
    from hangdoc import bundle_text

    run, planted = frozen
    reader = bundle_text.Reader()
    for line in _hangdoc("snapshot", "--as-text", "--pid", str(run.launcher.pid)).splitlines():
        reader.feed(line)
    assert reader.raw is not None
    assert not _found(gzip.decompress(reader.raw), planted)


def test_none_is_in_what_a_watch_keeps_prints_and_posts(frozen: Frozen, tmp_path: Path) -> None:
    posted: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    run, planted = frozen
    try:
        printed = _hangdoc("watch", "--pid", str(run.launcher.pid), "--interval", "1", "--patience", "1", "-o", str(tmp_path),
                           "--webhook", f"http://127.0.0.1:{server.server_port}/")  # fmt: skip
    finally:
        server.shutdown()
    (bundle,) = tmp_path.glob("*.hangdoc")
    (report,) = tmp_path.glob("*.txt")
    for made in (printed, *posted, gzip.decompress(bundle.read_bytes()), report.read_bytes()):
        assert made
        assert not _found(made, planted)
    assert len(posted) == 1


def test_none_is_in_what_a_watchdog_leaves_and_prints(tmp_path: Path) -> None:
    """But for the names of folders: a stack by faulthandler has files as they are called."""
    with _started(tmp_path, WATCHED="1") as (run, planted):
        log = run.wait_for("full report|no report was written", 2, 150)  # on a busy machine the second is late
        made = {path.name: path.read_bytes() for path in run.hang().iterdir()}
    del planted["folder"]
    assert {"rank-0.stacks.txt", "rank-1.stacks.txt", "report.txt"} <= set(made)
    for name, content in (*made.items(), ("log", log.encode())):
        assert not _found(gzip.decompress(content) if name.endswith(".hangdoc") else content, planted), name
