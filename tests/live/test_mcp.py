"""`hangdoc mcp` for real: the SDK's own client at a really frozen run, and a hostile one."""

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult

from hangbench.record import CORPUS
from hangdoc.schema import diagnosis_schema
from hangdoc_trainer.scenarios import SCENARIOS, Started
from tests.live.needs import shares
from tests.live.test_scenarios import HANGDOC, restored, settled

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
SECONDS = 400


@asynccontextmanager
async def connected(*arguments: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client of a server of its own."""
    server = StdioServerParameters(command=HANGDOC, args=["mcp", *arguments])
    async with Client(server, mode=mode, read_timeout_seconds=SECONDS) as client:
        yield client


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer: text and structure say the same."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    found: dict[str, Any] = result.structured_content
    assert json.loads(text(result)) == found
    return found


async def refused(client: Client, tool: str, arguments: dict[str, Any]) -> str:
    """The sentence of a call that does not work."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text(result)
    return text(result)


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


@shares("shard-mismatch")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_is_told_the_classic_story(run: Started, mode: str) -> None:
    """List, diagnose, look at the culprit, compare, explain: with what the answers themselves name, and nothing else."""
    ranks = run.rank_pids()
    before = settled(list(ranks.values()), 0.5)
    async with connected(mode=mode) as client:
        offered = (await client.list_tools()).tools
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in offered)
        assert "never guess" in (client.instructions or "")

        runs = (await answer(client, "list_runs"))["runs"]
        (mine,) = (one for one in runs if set(one.get("launcher_pids", ())) == set(run.pids))
        assert (mine["ranks_seen"], mine["world_size"]) == ("0-1", 2)

        look = await answer(client, "diagnose", pids=mine["launcher_pids"], patience=2)
        (job,) = look["jobs"]
        finding = job["findings"][0]
        assert (job["job"], job["verdict"]) == (mine["job"], "hung")
        assert (finding["code"], finding["name"], finding["severity"]) == ("HD101", "shard-mismatch", "error")
        assert finding["culprits"] == [1]
        assert finding["waiting"] == "0"
        assert any("201 .parquet files" in fact["text"] for fact in finding["evidence"])

        culprit = await answer(client, "rank_detail", rank=finding["culprits"][0])
        assert culprit["rank"]["pid"] == ranks[1]
        assert culprit["data"][0]["files"] == 4
        assert any(frame.get("own") and "dist.barrier()" in frame["source"] for frame in culprit["stack"])
        assert culprit["sockets"] and culprit["counters"] and culprit["environment"]["RANK"] == "1"

        compared = await answer(client, "compare_ranks", rank=1, other=0)
        assert {"operation", "batches", "training data"} <= {one["what"] for one in compared["differences"]}
        page = await answer(client, "explain_finding", finding=finding["id"])
        assert "## Use instead" in page["page"]
        assert (await answer(client, "what_was_not_seen"))["complete"]

        again = await answer(client, "diagnose", job=mine["job"], patience=2)
        assert again["jobs"][0]["findings"][0]["id"] == finding["id"]
        assert again["jobs"][0]["findings"][0]["first_seen_in_look"] == look["look"]

        written = {one.uri for one in (await client.list_resources()).resources}
        document = (await client.read_resource(f"hangdoc://looks/{look['look']}/diagnosis.json")).contents[0]
        page_of_look = (await client.read_resource(f"hangdoc://looks/{look['look']}/report.html")).contents[0]
        assert {document.uri, page_of_look.uri} <= written
        diagnosis = json.loads(document.text)
        jsonschema.validate(diagnosis, diagnosis_schema())
        assert diagnosis["jobs"][0]["findings"][0]["id"] == finding["id"]
        assert "HD101" in page_of_look.text
    assert restored(before) == before


@shares("shard-mismatch")
async def test_a_hostile_client_gets_sentences_and_the_server_lives_on(run: Started, tmp_path: Path) -> None:
    (tmp_path / "link.hangdoc").symlink_to(CORPUS / "recv_never.hangdoc")
    (tmp_path / "own.hangdoc").write_bytes((CORPUS / "recv_never.hangdoc").read_bytes())
    big = "x" * 5_000_000
    pids = list(run.pids)
    async with connected("--bundles", str(tmp_path)) as client:
        for tool, arguments, said in (
            ("diagnose", {"job": big}, "length <= 300"),
            ("diagnose", {"hosts": big}, "length <= 2000"),
            ("diagnose", {"pids": [1] * 100_000}, "length <= 64"),
            ("diagnose", {"window": 1e308}, "<= 60"),
            ("diagnose", {"pids": [4194303]}, "no process with pid"),
            ("diagnose", {"pids": [os.getpid()], "hosts": "n1"}, "cannot be combined"),
            ("diagnose", {"job": "no such job", "pids": pids}, "no job 'no such job'"),
            ("diagnose", {"hosts": "node[[1"}, "cannot be read"),
            ("diagnose", {"hosts": "n[0-999999999999999999999]"}, "more than 100000 hosts"),
            ("diagnose", {"hosts": "-oProxyCommand=id"}, "only names and ranges are allowed"),
            ("diagnose", {"hosts": "localhost;id"}, "only names and ranges are allowed"),
            ("diagnose", {big: 1}, "unknown field"),
            ("open_bundle", {"path": str(CORPUS / "recv_never.hangdoc")}, "not below"),
            ("open_bundle", {"path": "../../etc/passwd"}, "not below"),
            ("open_bundle", {"path": "link.hangdoc"}, "not below"),
            ("open_bundle", {"path": "/proc/self/mem"}, "not below"),
            ("open_bundle", {"path": big}, "length <= 4096"),
            ("rank_detail", {"rank": {"a": [big]}}, "Expected `int`"),
            ("rank_detail", {"rank": 0}, "there is no look yet"),
            ("explain_finding", {"finding": "../../README"}, "no finding"),
            ("compare_launch_lines", {"lines": ["$(touch /tmp/x) a b", "`id` torchrun a.py"]}, "."),
            ("compare_launch_lines", {"lines": [big]}, "length <= 20000"),
            ("no_such_tool", {}, "The tools are: diagnose"),
        ):  # fmt: skip
            sentence = await refused(client, tool, arguments)
            assert said in sentence, (tool, sentence[:300])
            assert len(sentence) < 1500
            assert "Traceback" not in sentence
        for uri in (
            "file:///etc/passwd",
            "hangdoc://looks/../../etc/passwd",
            "hangdoc://looks/1/diagnosis.json",
            "x" * 10_000,
        ):
            with pytest.raises(MCPError, match="no resource"):
                await client.read_resource(uri)
        assert (await answer(client, "open_bundle", path="own.hangdoc"))["verdict"] == "hung"

        outcomes: list[str] = []

        async def ask() -> None:
            result = await client.call_tool("diagnose", {"pids": pids, "window": 0.1, "patience": 2})
            outcomes.append("refused" if result.is_error and "running or waiting" in text(result) else
                            result.structured_content["verdict"])  # fmt: skip

        async with anyio.create_task_group() as together:
            for _ in range(20):
                together.start_soon(ask)
        assert set(outcomes) == {"hung", "refused"}
        assert len(outcomes) == 20
        assert outcomes.count("hung") >= 8
        assert (await answer(client, "diagnose", pids=pids, patience=2))["verdict"] == "hung"


@shares("shard-mismatch")
async def test_the_same_hang_over_hosts_has_the_same_id(run: Started) -> None:
    """Hosts are reached by a command here, as by ssh; only those that the server was started with may be named."""
    async with connected("--via", "env HOST={host}", "--remote-command", HANGDOC, "--hosts", "h[0-3]") as client:
        here = (await answer(client, "diagnose", pids=list(run.pids), patience=2))["jobs"][0]
        there = await answer(client, "diagnose", job=here["job"], hosts="h[0-1]", patience=2)
        assert there["jobs"][0]["findings"][0]["id"] == here["findings"][0]["id"]
        assert any("the same machine as h0" in problem for problem in there["problems"])
        assert "may not observe h9" in await refused(client, "diagnose", {"hosts": "h[2,9]"})
        assert "may not observe h9" in await refused(client, "preflight", {"hosts": "h9"})


async def test_a_run_that_ends_in_between() -> None:
    """Killed under a look: an answer or a sentence, and no failure. Afterwards what was seen stays, and a new look says that the
    run has gone."""
    async with connected() as client:
        with Started(SCENARIOS["rank-stops"]) as run:
            pids = list(run.pids)
            look = await answer(client, "diagnose", pids=pids, patience=2)
            assert look["jobs"][0]["findings"][0]["name"] == "rank-stopped"
            results: list[CallToolResult] = []

            async def ask() -> None:
                results.append(await client.call_tool("diagnose", {"pids": pids, "window": 3, "patience": 2}))

            async with anyio.create_task_group() as together:
                together.start_soon(ask)
                await anyio.sleep(
                    1.5
                )  # in the window, or before or after it on a busy machine: no answer may be a failure
                await anyio.to_thread.run_sync(run.offspring.end)
        assert "please report it" not in text(results[0]), text(results[0])
        assert (await answer(client, "rank_detail", rank=1, look=look["look"]))["rank"]["state"] == "blocked: stopped"
        assert "it has ended" in await refused(client, "diagnose", {"pids": pids})
        assert (await answer(client, "explain_finding", finding="HD302"))["code"] == "HD302"


def test_nothing_but_the_protocol_on_stdout_and_the_end_with_the_client() -> None:
    """Garbage in, protocol out; the end of standard input is the end of the server."""
    server = subprocess.Popen([HANGDOC, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = [
        b"not json", b"\xff\xfe\x00", b"{}", b"[" * 10_000, b'{"jsonrpc":"2.0","method":"no/such","id":1}', b"x" * 20_000_000,
        b'{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
        b'"clientInfo":{"name":"t","version":"1"}}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"explain_finding","arguments":{"finding":"HD101"}}}',
        b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"preflight","arguments":{}}}',
    ]  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    with server:
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers = {}
        until = time.monotonic() + SECONDS
        while 4 not in answers and time.monotonic() < until:
            message = json.loads(server.stdout.readline())  # raises for anything else on stdout
            answers[message.get("id")] = message
        server.stdin.close()
        assert server.wait(timeout=100) == 0
        assert server.stdout.read() == b""
    assert not answers[3]["result"].get("isError"), answers[3]
    assert answers[4]["result"]["structuredContent"]["nodes"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once(number: signal.Signals) -> None:
    server = subprocess.Popen([HANGDOC, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        server.stdin.flush()
        server.stdout.readline()  # it answers, so it listens
        server.send_signal(number)
        assert server.wait(timeout=100) == 128 + number


def test_a_directory_that_is_not_there_is_said() -> None:
    done = subprocess.run(
        [HANGDOC, "mcp", "--bundles", "/no/such"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "hangdoc: --bundles /no/such: no such file or directory.\n"
