"""The commands' outside: exit codes, one clear sentence, nothing on stdout but what was asked for, import costs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc import codec
from hangdoc.cli.run import _describe_hang
from hangdoc.reasoning.engine import diagnose
from hangdoc.version import __version__
from hangdoc.watch.evidence import EvidenceDirectory
from tests.rules import fires
from tests.unit.builders import rank, snapshot, train

HANGDOC = str(Path(sys.executable).with_name("hangdoc"))


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HANGDOC, *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    path = tmp_path / "hung.hangdoc"
    codec.write(fires("HD101"), path)
    return str(path)


def one_sentence(result: subprocess.CompletedProcess[str]) -> str:
    assert result.stdout == ""
    assert result.stderr.startswith("hangdoc: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_version() -> None:
    assert run("--version").stdout == f"hangdoc {__version__}\n"


def test_json_is_one_document_and_nothing_else(bundle: str) -> None:
    result = run("diagnose", "--json", bundle)
    assert result.returncode == 1
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document["schema"] == "hangdoc.diagnosis/1"
    assert set(document) >= {
        "schema", "hangdoc", "taken_at", "window_seconds", "elapsed_seconds", "verdict", "jobs", "problems",
    }  # fmt: skip
    job = document["jobs"][0]
    assert set(job) >= {
        "id", "launcher", "backend", "world_size", "master", "verdict", "hung_for_seconds", "ranks", "findings", "unseen",
    }  # fmt: skip
    assert set(job["ranks"][0]) >= {
        "rank", "local_rank", "host", "pid", "label", "state", "operation", "where", "cpu_percent", "batches_done",
        "batches_total", "silent_seconds",
    }  # fmt: skip
    assert set(job["ranks"][0]["operation"]) >= {"op", "origin", "group", "peer", "seq"}
    assert set(job["findings"][0]) >= {
        "code", "name", "severity", "confidence", "culprits", "victims", "summary", "evidence", "remedy", "id",
    }  # fmt: skip


def test_the_report_fits_80_columns_and_says_it_all(bundle: str) -> None:
    result = run("diagnose", bundle)
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert "HUNG" in lines[0]
    assert "\x1b" not in result.stdout
    for words in ("HD101 shard-mismatch", "culprit   rank 1", "waiting   rank 0", "201", "to do", "train.py:15"):
        assert words in result.stdout


def test_healthy_is_0_unknown_is_4(tmp_path: Path) -> None:
    codec.write(snapshot(rank(0, train(12), cpu=0.9), rank(1, train(12), cpu=0.9)), tmp_path / "healthy")
    codec.write(fires("HD901"), tmp_path / "unknown")
    assert run("diagnose", str(tmp_path / "healthy")).returncode == 0
    assert run("diagnose", str(tmp_path / "unknown")).returncode == 4


def test_html_and_save_are_written_whole(bundle: str, tmp_path: Path) -> None:
    page, copy = tmp_path / "report.html", tmp_path / "copy.hangdoc"
    done = run("diagnose", bundle, "--html", str(page), "--save", str(copy))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"wrote {copy}: the evidence, for `{HANGDOC} diagnose {copy}`", f"wrote {page}: the report as a page",
    ]  # fmt: skip
    text = page.read_text()
    assert "shard-mismatch" in text
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "\x1b" not in text
    assert codec.read(copy) == codec.read(Path(bundle))


def test_the_page_is_written_though_nobody_reads_the_report(bundle: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody:
        subprocess.run([HANGDOC, "diagnose", bundle, "--html", str(page)], stdout=nobody, timeout=60, check=False)
    assert page.read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("diagnose", "--window", "3"), ("diagnose", "--native", "never"), ("diagnose", "--ras", "never"),
        ("diagnose", "--locals", "all"), ("diagnose", "--timeout", "20"), ("diagnose", "--via", "ssh {host}"),
        ("diagnose", "--ssh-option", "Port=23"), ("diagnose", "--remote-command", "x"), ("diagnose", "--fanout", "3"),
        ("diagnose", "--host-timeout", "20"), ("top", "--window", "3"), ("top", "--timeout", "20"), ("top", "--fanout", "64"),
        ("top", "--allow-signals", None),
    ],
)  # fmt: skip
def test_saved_evidence_takes_no_option_of_a_look(command: str, option: str, value: str | None, bundle: str) -> None:
    """Also with the default as its value: the caller expects that it does something."""
    result = run(command, bundle, option, *([value] if value is not None else []))
    assert result.returncode == 2
    assert one_sentence(result) == (
        f"hangdoc: {option} is for a look at running ranks, but {bundle} is saved evidence. Leave out {option}, or name no "
        "bundle.\n"
    )


def test_options_of_a_report_fit_saved_evidence(bundle: str, tmp_path: Path) -> None:
    saved, page = tmp_path / "again.hangdoc", tmp_path / "page.html"
    result = run("diagnose", bundle, "--patience", "5", "--json", "--save", str(saved), "--html", str(page))
    assert (result.stderr, saved.exists(), page.exists()) == ("", True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["diagnose", "absent.hangdoc"], 2, "cannot read absent.hangdoc"),
        (["diagnose", "--pid", "4194303"], 3, "no process with pid 4194303"),
        (["diagnose", "--pid", "9" * 30], 3, "no process with pid 999"),
        (["diagnose", "--save", "no/such/folder/x"], 2, "cannot write"),
        (["snapshot", "-o", "/"], 2, "cannot write"),
        (["run", "-o", "/dev/null/x", "--", "true"], 2, "cannot create /dev/null/x"),
        (["watch", "-o", "/dev/null/x"], 2, "cannot create /dev/null/x"),
        (["rules", "nonsense"], 2, "no rule 'nonsense'. `hangdoc rules`"),
        (["rules", "shard-mismtch"], 2, "no rule 'shard-mismtch'. Did you mean shard-mismatch? `hangdoc rules`"),
        (["rules", "HD20"], 2, "Did you mean HD20"),
        (["demo", "uneven-batch"], 2, "Did you mean uneven-batches?"),
        (["demo", "nonsense"], 2, "no demo 'nonsense'"),
    ],
)
def test_bad_input(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == code
    assert words in one_sentence(result)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnos"], "No such command 'diagnos'. Did you mean diagnose?"),
        (["zzz"], "No such command 'zzz'."),
        (["help"], "No such command 'help'. Did you mean --help?"),
        (["diagnose", "--pdi", "3"], "No such option '--pdi'. Did you mean '--pid'?"),
        (["diagnose", "--frobnicate"], "No such option '--frobnicate'."),
        (
            ["preflight", "torchrun", "--nproc-per-node", "3", "train.py"],
            "No such option '--nproc-per-node'. If it is an option of torchrun, write `--` before the launch line.",
        ),
        (
            ["launch-diff", "torchrun", "--nnodes", "2", "train.py"],
            "No such option '--nnodes'. If it is an option of torchrun, write each launch line in quotes.",
        ),
        (["preflight", "--ranks-per-nod", "2"], "No such option '--ranks-per-nod'. Did you mean '--ranks-per-node'?"),
    ],
)
def test_a_mistyped_command_or_option_names_the_nearest(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == f"Error: {message}"


def test_the_label_of_a_report_is_a_command_too() -> None:
    assert run("explain", "HD204").stdout == run("rules", "HD204").stdout


def test_run_names_the_rank_whose_line_it_shows() -> None:
    (job,) = diagnose(fires("HD101")).jobs
    assert "; rank 1 is at me/train.py:22 in train" in _describe_hang(job, None)


def test_a_report_leaves_room_for_what_precedes_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    looked = fires("HD101")
    for margin in (0, 9):
        kept = EvidenceDirectory(tmp_path, lambda *_: "", margin=margin).keep(looked, diagnose(looked), "x")
        assert 70 - margin < max(map(len, kept.text.splitlines())) <= 80 - margin


def test_run_creates_the_directory_for_its_evidence(tmp_path: Path) -> None:
    assert run("run", "-o", "new/folder", "--", "true", cwd=tmp_path).returncode == 0
    assert (tmp_path / "new" / "folder").is_dir()


def test_hangdoc_is_not_the_python_process_of_the_shell_that_it_looks_at() -> None:
    words = ["sh", "-c", f"{HANGDOC} diagnose --pid $$; true"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "is neither a rank of torch.distributed nor the launcher of one" in one_sentence(result)


def test_a_process_that_is_no_rank() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        result = run("diagnose", "--pid", str(child.pid))
    finally:
        child.kill()
        child.wait()
    assert result.returncode == 3
    assert f"pid {child.pid}" in one_sentence(result)


def test_json_is_a_document_also_where_there_is_nothing() -> None:
    result = run("diagnose", "--json", "--pid", "4194303")
    assert result.returncode == 3
    document = json.loads(result.stdout)
    assert document["jobs"] == []
    assert document["problems"] == [result.stderr.removeprefix("hangdoc: ").strip()]


def test_unknown_job_and_usage(bundle: str) -> None:
    result = run("diagnose", "--job", "nonsense", bundle)
    assert result.returncode == 2
    assert "none@10.0.0.1:29500" in one_sentence(result)
    assert run("diagnose", "--window", "x").returncode == 2
    assert run("nonsense").returncode == 2
    assert run("diagnose", "--pid", "1", bundle).returncode == 2


def test_rules_and_their_pages() -> None:
    listing = run("rules").stdout
    assert "HD101  shard-mismatch" in listing
    page = run("rules", "shard-mismatch").stdout
    assert page == run("rules", "HD101").stdout
    assert "## Why it hangs" in page


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import hangdoc.cli.main", {"click", "rich", "msgspec", "psutil", "torch"}),
        ("import hangdoc.cli.diagnose", {"rich", "http", "torch", "pyarrow"}),
        ("import hangdoc.cli.diagnose, hangdoc.reasoning.engine, hangdoc.render.text, hangdoc.watch.act", {"jinja2"}),
        ("import hangdoc.beacon", {"msgspec", "psutil", "torch"}),
        ("import hangdoc_trainer.scenarios", {"torch", "psutil"}),
    ],
)
def test_import_costs(code: str, absent: set[str]) -> None:
    """What a command does not use, it does not load."""
    program = f"import sys; {code}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert not absent & set(loaded.split())


_NEVER_USED = {
    "ClusterShell", "argparse", "asyncio", "email", "gzip", "http", "importlib.metadata", "jinja2", "multiprocessing", "optparse",
    "pkg_resources", "psutil", "pydoc", "ssl", "tempfile", "textual", "torch", "tree_sitter", "unittest", "urllib.request",
}  # fmt: skip


def _loaded_by(code: str) -> set[str]:
    """The modules that are loaded after a program has run."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('loaded:', *sys.modules)"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("loaded:")[2].split())


def test_a_diagnosis_loads_only_what_it_uses(bundle: str) -> None:
    """Most of the CPU that `diagnose` takes goes into loading modules."""
    loaded = _loaded_by(f"from hangdoc.cli.group import run; assert run(['diagnose', {bundle!r}]) == 1")
    assert "hangdoc.render.text" in loaded
    assert not _NEVER_USED & loaded
    assert not {"hangdoc.commands.documents", "hangdoc.fleet.gather", "hangdoc.render.html"} & loaded


def test_a_look_loads_only_what_it_uses() -> None:
    """Also where it finds a rank."""
    loaded = _loaded_by(
        "import os, subprocess, sys\n"
        "from hangdoc.observe.look.observe import Options, observe\n"
        "torch = {'RANK': '0', 'WORLD_SIZE': '1', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '1'}\n"
        "waits = 'import sys; print(1, flush=True); sys.stdin.read()'\n"
        "rank = subprocess.Popen([sys.executable, '-c', waits], stdin=-1, stdout=-1, env={**os.environ, **torch})\n"
        "rank.stdout.readline()\n"
        "seen = observe(Options(pids=(rank.pid,), window=0.1))\n"
        "rank.communicate()\n"
        "assert {p.role for p in seen.hosts[0].processes} == {'rank', 'launcher'}, seen"
    )
    assert "hangdoc.observe.kernel.interfaces" in loaded
    assert not (_NEVER_USED | {"click", "rich"}) & loaded


def test_no_expression_is_compiled_before_it_is_used() -> None:
    _loaded_by(
        "import re, sys\n"
        "compiler = sys.modules.get('re._compiler') or sys.modules['sre_compile']\n"  # up to Python 3.10
        "real = compiler.compile\n"
        "def compile(pattern, flags=0):\n"
        "    caller = sys._getframe(1)\n"
        "    while caller.f_globals['__name__'] == 're':\n"
        "        caller = caller.f_back\n"
        "    assert not caller.f_globals['__name__'].startswith('hangdoc'), (pattern, caller.f_globals['__name__'])\n"
        "    return real(pattern, flags)\n"
        "compiler.compile = compile\n"
        "import hangdoc.cli.diagnose, hangdoc.render.text\n"
        "from hangdoc.reasoning.rules import all_rules\n"
        "all_rules()"
    )


def test_a_command_that_does_not_exist_is_refused_before_the_hang() -> None:
    """Nobody may be there when it should run. `stopp` would stop nothing."""
    result = run("run", "--on-hang", "stopp", "--", "true")
    one_sentence(result)
    assert result.returncode == 2
    assert "there is no program 'stopp'. Did you mean stop?" in result.stderr


@pytest.mark.parametrize("empty", ["", "  "])
@pytest.mark.parametrize("arguments", [("watch",), ("run", "--", "true")], ids=lambda arguments: arguments[0])
def test_an_empty_command_is_refused_before_the_hang(arguments: tuple[str, ...], empty: str) -> None:
    """`--on-hang "$PAGER"` without the variable would page nobody."""
    name, *more = arguments
    result = run(name, "--on-hang", empty, *more)
    one_sentence(result)
    assert (result.returncode, "--on-hang is empty" in result.stderr) == (2, True)
