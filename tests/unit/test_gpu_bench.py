"""The bench for one NVIDIA card, as far as it goes without one: cases, RAS, samples of the card, comparison, table, archive."""

import json
import os
import signal
import socketserver
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hangbench.case import parse
from hangbench.gpu import __main__ as command
from hangbench.gpu import ras
from hangbench.gpu.bench import pack
from hangbench.gpu.case import FOLDER, CardCase, card_cases
from hangbench.gpu.table import results_table
from hangbench.gpu.trial import Trial, variables_of
from hangbench.record import bundle
from hangbench.recorder import Comparison
from hangdoc import codec
from hangdoc.observe.torch.recorded_calls import Call, Calls, Group
from hangdoc.observe.torch.recorder_history import Record
from hangdoc.snapshot import CallForm
from hangdoc_trainer.offspring import free_port


def test_every_case_says_what_is_right() -> None:
    cases = card_cases().values()
    assert len(cases) == len(list(FOLDER.glob("*.py"))) >= 25
    assert sum(case.control for case in cases) >= 9
    for case in cases:
        text = case.script.read_text()
        assert 'print("ready", flush=True)' in text, case.name
        assert case.needs_card != ('"gloo"' in text), f"{case.name} must run on Gloo, or say that it needs a card"
        assert case.control or case.finding, case.name


def test_a_header_cannot_say_where_its_script_is(tmp_path: Path) -> None:
    script = tmp_path / "odd.py"
    script.write_text('"""Nothing."""\n\n# /// hangbench\n# verdict = ["hung"]\n# ready = "/etc"\n# ///\n')
    with pytest.raises(ValueError, match=r"odd\.py"):
        parse(script, CardCase)


def test_ranks_share_a_card_only_if_there_is_one(tmp_path: Path) -> None:
    with_card, without = (variables_of(3, tmp_path / "case", card) for card in (True, False))
    assert with_card["NCCL_RAS_ADDR"] != variables_of(4, tmp_path / "case", True)["NCCL_RAS_ADDR"]
    assert {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME"} <= set(with_card)
    assert without["CUDA_VISIBLE_DEVICES"] == ""
    assert not any(name.startswith("NCCL") for name in without)
    assert Path(with_card["HOME"]).is_dir()


def test_a_rank_gets_its_host_name_and_can_write_its_dump(tmp_path: Path) -> None:
    environment = {**os.environ, **variables_of(0, tmp_path, True), "RANK": "2"}
    program = "import os, sys; print(os.environ['NCCL_HOSTID'], flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "host2\n"
        rank.send_signal(signal.SIGUSR2)
        dump = tmp_path / "dump-2.json"
        until = time.monotonic() + 30
        while not dump.exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert "torch" in json.loads(dump.read_text())["error"]  # which it has not imported
        assert rank.poll() is None


def test_without_a_card_it_is_skipped_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "missing_card", lambda: "this machine has no NVIDIA card")
    result = CliRunner().invoke(command.main, [])
    assert (result.exit_code, result.output) == (0, "make gpu is skipped: this machine has no NVIDIA card\n")


@contextmanager
def ras_server(answers: dict[str, str]) -> Iterator[int]:
    """A server that answers lines, and closes behind a status."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for raw in self.rfile:
                line = raw.decode().strip()
                self.wfile.write(answers.get(line, "OK\n").encode())
                if "STATUS" in line:
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", free_port()), Handler, bind_and_activate=False) as server:
        server.allow_reuse_address = True
        server.server_bind()
        server.server_activate()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_of_ras_is_kept_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_AGAIN_SECONDS", 0.0)
    answers = {"CLIENT PROTOCOL 2": "SERVER PROTOCOL 2\n", "VERBOSE STATUS": "all is well\n", "STATUS": "fine\n"}
    with ras_server(answers) as port:
        ras.ask_all(port, tmp_path)
    assert (tmp_path / "ras-plain.txt").read_text().startswith("SERVER PROTOCOL 2\nOK\nfine\n")
    assert (tmp_path / "ras-json.txt").read_text().startswith("SERVER PROTOCOL 2\nOK\nOK\nall is well\n")
    assert "all is well" in (tmp_path / "ras-verbose-again.txt").read_text()


def test_a_server_that_does_not_answer_costs_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "_READ_SECONDS", 0.1)
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as silent:
        assert "TimeoutError" in ras.ask(silent.server_address[1], ("STATUS",))
    assert "ConnectionRefusedError" in ras.ask(free_port(), ("STATUS",))


_STUB = """
class c_nvmlGpmMetricsGet_t: pass
def nvmlInit(): pass
def nvmlDeviceGetHandleByIndex(index): return index
class _Use: gpu, memory = 100, 0
def nvmlDeviceGetUtilizationRates(card): return _Use
def nvmlDeviceGetPowerUsage(card): return 128206
def nvmlDeviceGetName(card): return "H100"
def nvmlDeviceGetClockInfo(card, which): raise RuntimeError("not supported")
"""


def test_samples_of_the_card_survive_what_it_cannot_answer(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(_STUB)
    samples = tmp_path / "nvml.jsonl"
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parents[2]}"
    with subprocess.Popen(
        [sys.executable, "-m", "hangbench.gpu.nvml", str(samples)], env={**os.environ, "PYTHONPATH": path}
    ) as sampler:
        until = time.monotonic() + 30
        while (not samples.exists() or samples.read_text().count('"at"') < 2) and time.monotonic() < until:
            time.sleep(0.05)
        sampler.terminate()
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert rows[0]["card"]["name"] == "H100"
    assert rows[0]["card"]["uuid"].startswith("!")
    readings = [row for row in rows if "gpu" in row]
    assert [(row["gpu"], row["mw"], row["sm_mhz"]) for row in readings[:2]] == [(100, 128206, "!not supported")] * 2
    table = results_table([], [], {"cases": (0.0, 1e12)}, samples)
    assert "utilisation 100 %, memory 0 %, 128 W (at most 128), SM !not supported MHz" in table


def _record(*calls: Call) -> Record:
    return Record("cuda", Calls(list(calls), (CallForm(op="all_reduce"),)), len(calls), 2000, {}, 0)


def _call(number: int, retired: bool = True, made_ns: int = 5) -> Call:
    return Call(number, Group(0, "0", "default_pg"), number, 0, number, 0, made_ns, 600_000, False, None, None, None, retired,
                None, None)  # fmt: skip


def _entry(number: int, **changes: object) -> dict[str, object]:
    return {
        "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number, "p2p_seq_id": 0,
        "op_id": number, "profiling_name": "nccl:all_reduce", "input_sizes": [], "input_dtypes": [], "output_sizes": [],
        "output_dtypes": [], "time_created_ns": 5, "timeout_ms": 600_000, "is_p2p": False, "duration_ms": None,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": True, "frames": [], **changes,
    }  # fmt: skip


def test_only_calls_that_stood_still_are_compared() -> None:
    comparison = Comparison()
    before, after = _record(_call(1), _call(2, retired=False)), _record(_call(1), _call(2), _call(3))
    comparison.compare_stable(before, after, {"entries": [_entry(1), _entry(2, retired=False)]})
    assert (comparison.entries, dict(comparison.different)) == (1, {})


def test_what_differs_from_the_dump_is_counted_by_field() -> None:
    comparison = Comparison()
    record = _record(_call(1), _call(2), _call(3, made_ns=6))
    noticed = _entry(1, time_discovered_completed_ns=9)
    comparison.compare_stable(record, record, {"entries": [noticed, _entry(3)]})
    assert dict(comparison.different) == {"entries": 1, "time_created_ns": 1}
    assert comparison.unnoticed == 1


def test_the_table_says_what_is_wrong_and_what_was_left_out(tmp_path: Path) -> None:
    right = Trial("stopped", 0.0, 9.0, 11.0, 12.0, 1.5, "hung", "HD302", (1,), right=True, recorder="5 entries: equal")
    wrong = Trial("healthy", 0.0, verdict="hung", early="hung", again="healthy", right=False, complaints="verdict hung")
    lost = Trial("group_order", 0.0, problems=["the run: did not start"])
    table = results_table([right, wrong, lost], ["straggler"], {}, tmp_path / "none")
    assert "1 of 3 right, 1 without an answer" in table
    assert "1 of 1 controls called hung, 0 of 1 at a second look; 1 of 1 runs at their start" in table
    assert "WRONG: verdict hung; early look: hung" in table
    assert "no answer; no dump; the run: did not start" in table
    assert "left out: straggler" in table


def test_earlier_evidence_is_scored_and_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of hangbench's own, of the same fault, is the look of an earlier run."""
    (tmp_path / "crashed_but_alive").mkdir()
    snapshot = codec.read(bundle("crashed_but_alive"))
    codec.write(snapshot, tmp_path / "crashed_but_alive" / "auto.hangdoc")
    earlier = Trial("crashed_but_alive", 0.0, right=False, complaints="as it was", recorder="9 entries: equal")
    (tmp_path / "results.json").write_bytes(msgspec.json.encode([earlier]))
    page = tmp_path / "page.md"
    page.write_text("<!-- card -->\n<!-- /card -->\n")
    monkeypatch.setattr(command, "CARD", tmp_path / "card")
    monkeypatch.setattr(command, "PAGE", page)
    result = CliRunner().invoke(command.main, ["--replay", str(tmp_path), "--record", "--write"])
    assert result.exit_code == 0, result.output
    assert "right; 9 entries: equal" in result.output
    assert "| crashed_but_alive | hung | hung | HD202 | Rank 1 raised" in page.read_text()
    assert codec.read(tmp_path / "card" / "crashed_but_alive.hangdoc") == snapshot


def test_the_archive_has_the_evidence_and_no_caches(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    for name in ("case/log", "case/home/.cache/torch/comm_lib_trace_rank_1", "case/home/.triton/cache/kernel"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "case" / "link").symlink_to("/etc/passwd")
    pack(folder, tmp_path / "gpu.tar.xz")
    with tarfile.open(tmp_path / "gpu.tar.xz") as packed:
        assert packed.getnames() == ["gpu/case/home/.cache/torch/comm_lib_trace_rank_1", "gpu/case/log"]
