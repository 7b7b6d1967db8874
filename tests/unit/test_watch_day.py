"""`hangdoc watch` over a day: what it remembers, whom it tells, and what it keeps."""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from docs.reports import FOLDER
from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Snapshot
from hangdoc.watch import deliver, messages
from hangdoc.watch.act import Reaction, Targets
from hangdoc.watch.confirm import Changes, Confirmation
from hangdoc.watch.evidence import EvidenceDirectory
from hangdoc.watch.message_queue import MOST, MessageQueue, Refused, Unreachable
from hangdoc.watch.state import Ledger, Message, State, StateError
from tests.rules import fires


def page(snapshot: Snapshot, diagnosis: Diagnosis) -> str:
    return "<page>"


def hung() -> Diagnosis:
    return diagnose(fires("HD302"), patience=0.0)


def changes_of(confirmation: Confirmation, *looks: Diagnosis) -> Changes:
    return [confirmation.add(look, time.monotonic()) for look in looks][-1]


def message(number: int) -> Message:
    return Message(delivery=str(number), about=f"message {number}", body=json.dumps(number))


def fill(ledger: Ledger, queue: MessageQueue, *several: Message) -> None:
    with ledger.changing():
        for one in several:
            queue.add(one)


class Receiver:
    """A web server that answers what it is told to, and keeps what it is sent."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.headers: dict[str, str] = {}
        self.taken: list[dict[str, object]] = []
        self.attempts: list[str] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.attempts.append(self.headers["Idempotency-Key"])
                answer = receiver.answers.pop(0) if receiver.answers else 200
                if answer == 200:
                    receiver.taken.append(json.loads(raw))
                self.send_response(answer)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def do_GET(self) -> None:
                raise AssertionError("a report was fetched instead of posted")

            def log_message(self, *words: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hang?token=SECRET"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.stop()


@pytest.fixture
def said() -> list[str]:
    return []


# --- messages ----------------------------------------------------------------------------------------------------------


def test_what_fails_for_a_while_is_delivered_once_and_in_order(receiver: Receiver, said: list[str]) -> None:
    receiver.answers = [503, 429, 200, 500, 200]
    ledger = Ledger(None, said.append)
    queue = MessageQueue("webhook", ledger, deliver.webhook(receiver.url), said.append, first_seconds=0.01)
    fill(ledger, queue, message(1), message(2))
    assert queue.finish(20)
    assert receiver.taken == [1, 2]
    assert receiver.attempts == ["1", "1", "1", "2", "2"]
    assert (ledger.counts.delivered, ledger.counts.retries) == ({"webhook": 2}, {"webhook": 3})
    assert sum("503" in line for line in said) == 1
    assert not any("SECRET" in line for line in said)


@pytest.mark.parametrize("code", [400, 404, 410, 302])
def test_what_is_refused_is_said_and_does_not_hold_up_the_rest(receiver: Receiver, said: list[str], code: int) -> None:
    receiver.answers, receiver.headers = [code], {"Location": "/elsewhere"}
    ledger = Ledger(None, said.append)
    queue = MessageQueue("webhook", ledger, deliver.webhook(receiver.url), said.append)
    fill(ledger, queue, message(1), message(2))
    assert queue.finish(20)
    assert receiver.taken == [2]
    assert ledger.counts.failed == {"webhook": 1}
    (line,) = said
    assert str(code) in line
    assert "message 1" in line


def test_a_receiver_says_when_to_come_back(receiver: Receiver) -> None:
    receiver.answers, receiver.headers = [429], {"Retry-After": "17"}
    with pytest.raises(Unreachable) as told:
        deliver.webhook(receiver.url)(message(1))
    assert told.value.after == 17


def test_a_slow_receiver_holds_up_nobody_and_drops_are_counted(said: list[str]) -> None:
    busy, go_on = threading.Event(), threading.Event()
    taken: list[str] = []

    def slow(one: Message) -> None:
        busy.set()
        assert go_on.wait(20)
        taken.append(one.delivery)

    ledger = Ledger(None, said.append)
    queue = MessageQueue("webhook", ledger, slow, said.append)
    fill(ledger, queue, message(0))
    assert busy.wait(20)
    began = time.monotonic()
    fill(ledger, queue, *(message(number) for number in range(1, MOST + 10)))
    assert time.monotonic() - began < 1
    assert queue.pending() == MOST
    assert ledger.counts.dropped == {"webhook": 10}
    assert len(said) == 10
    go_on.set()
    assert queue.finish(20)
    assert taken == ["0", *(str(number) for number in range(10, MOST + 10))]  # 0 was on its way


def test_nobody_listens(said: list[str]) -> None:
    with pytest.raises(Unreachable):
        deliver.webhook("http://127.0.0.1:9/hang")(message(1))


def test_half_an_answer_is_none() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.sendall(b"HTP/what?\r\n\r\n")
            connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(Unreachable):
            deliver.webhook(f"http://127.0.0.1:{server.getsockname()[1]}/")(message(1))


def test_a_generic_message_is_the_document_of_one_job_with_an_event() -> None:
    one = hung()
    other = replace(one.jobs[0], id="another team's run")
    both = replace(one, jobs=(other, *one.jobs))
    changes = changes_of(Confirmation(0), both, both)
    sure = next(sure for sure in changes.began if sure.hang.job == one.jobs[0].id)
    event = messages.event_of(sure.hang, both, sure.job, 12.0)
    text = messages.body("generic", both, event, sure.job)
    assert "another team" not in text
    document = json.loads(text)
    assert document["schema"] == "hangdoc.diagnosis/1"
    assert document["jobs"][0]["findings"][0]["id"] == document["event"]["id"] == sure.hang.id
    assert (document["event"]["kind"], document["event"]["code"]) == ("hang", "HD302")
    assert msgspec.json.decode(text, type=Diagnosis).jobs == one.jobs


def test_a_large_job_is_sent_with_its_culprits_and_some_ranks() -> None:
    one = hung()
    view = one.jobs[0].ranks[0]
    ranks = tuple(replace(view, rank=rank) for rank in range(5000))
    findings = (replace(one.jobs[0].findings[0], culprits=(4711,)),)
    job = replace(one.jobs[0], ranks=ranks, findings=findings)
    sure = changes_of(Confirmation(0), replace(one, jobs=(job,)), replace(one, jobs=(job,))).began[0]
    text = messages.body("generic", one, messages.event_of(sure.hang, one, job, 1.0), job)
    sent = [rank["rank"] for rank in json.loads(text)["jobs"][0]["ranks"]]
    assert len(sent) == 256
    assert 4711 in sent


def test_a_message_for_slack_is_escaped_and_holds_no_evidence() -> None:
    one = hung()
    evil = replace(one.jobs[0].findings[0], summary="<!channel> & <http://x|y> \x1b[0m `code`")
    job = replace(one.jobs[0], findings=(evil,))
    look = replace(one, jobs=(job,))
    sure = changes_of(Confirmation(0), look, look).began[0]
    event = messages.event_of(sure.hang, look, job, 61.0)
    message = json.loads(messages.body("slack", look, event, job))
    text = message["text"] + message["attachments"][0]["text"]
    assert "HUNG for 1 min 1 s: " in message["text"]
    assert job.id not in message["text"]
    assert job.id in text
    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in text
    assert "\x1b" not in text
    assert sure.hang.id in text
    for finding in job.findings:
        for evidence in finding.evidence:
            assert evidence.text not in text


def test_a_message_for_slack_names_the_host_of_the_culprit() -> None:
    look = diagnose(codec.read(FOLDER / "large.hangdoc"))
    (sure,) = changes_of(Confirmation(0), look, look).began
    event = messages.event_of(sure.hang, look, sure.job, 61.0)
    assert (
        "culprit: rank 37 on node4\n"
        in json.loads(messages.body("slack", look, event, sure.job))["attachments"][0]["text"]
    )


def test_an_end_is_told_with_the_id_of_its_hang(receiver: Receiver, tmp_path: Path, said: list[str]) -> None:
    confirmation, ledger = Confirmation(0), Ledger(None, said.append)
    reaction = Reaction(
        EvidenceDirectory(tmp_path, page), ledger, Targets(webhook=receiver.url), said.append, lambda kept: None
    )
    gone = replace(hung(), jobs=())
    for look in (hung(), hung(), hung(), gone, gone, gone):
        changes = confirmation.add(look, time.monotonic())
        if changes.began or changes.over:
            reaction.act(fires("HD302"), look, changes.began, changes.over, confirmation.hangs)
    reaction.finish()
    first, second = (json.loads(json.dumps(taken))["event"] for taken in receiver.taken)
    assert (first["kind"], second["kind"], second["ending"]) == ("hang", "resolved", "ended")
    assert first["id"] == second["id"]
    assert first["delivery"] != second["delivery"]
    assert (ledger.counts.hangs, ledger.counts.resolved) == (1, 1)


def test_a_command_is_run_once_with_the_report(tmp_path: Path, said: list[str]) -> None:
    told = tmp_path / "told"
    script = tmp_path / "script"
    script.write_text(f'#!/bin/sh\n{{ cat; echo "$HANGDOC_HANG $HANGDOC_VERDICT"; }} >> {told}\nexit 3\n')
    script.chmod(0o755)
    ledger = Ledger(None, said.append)
    reaction = Reaction(
        EvidenceDirectory(tmp_path, page), ledger, Targets((str(script),)), said.append, lambda kept: None
    )
    changes = changes_of(Confirmation(0), hung(), hung())
    reaction.act(fires("HD302"), hung(), changes.began)
    reaction.finish()
    assert told.read_text().count(f"{changes.began[0].hang.id} hung") == 1
    assert "HD302 rank-stopped" in told.read_text()
    assert any("exited with code 3" in line for line in said)
    with pytest.raises(Refused):
        deliver.command(("/no/such/command",))(Message(delivery="1", about="x", body=ledger_body()))


def ledger_body() -> str:
    return msgspec.json.encode(
        deliver.Call(bundle="b", report="/no/report", page="p", verdict="hung", job="j", hang="h")
    ).decode()


# --- the state file ----------------------------------------------------------------------------------------------------


def forget_lock(ledger: Ledger) -> None:
    """As the end of the process does."""
    import os

    os.close(ledger._held)


def test_a_restart_repeats_no_hang_and_loses_no_message(tmp_path: Path, said: list[str], receiver: Receiver) -> None:
    file = tmp_path / "state"
    before = Ledger(file, said.append)
    confirmation = Confirmation(0, before.hangs)
    reaction = Reaction(
        EvidenceDirectory(tmp_path, page),
        before,
        Targets(webhook="http://127.0.0.1:9/"),
        said.append,
        lambda kept: None,
    )
    for look in (hung(), hung()):
        changes = confirmation.add(look, time.monotonic())
        if changes.began:
            reaction.act(fires("HD302"), look, changes.began, changes.over, confirmation.hangs)
        else:
            reaction.remember(confirmation.hangs)
    forget_lock(before)  # killed here, with the message undelivered

    after = Ledger(file, said.append)
    assert after.counts.hangs == 1
    again = Confirmation(0, after.hangs)
    resumed = Reaction(
        EvidenceDirectory(tmp_path, page), after, Targets(webhook=receiver.url), said.append, lambda kept: None
    )
    assert not changes_of(again, hung(), hung(), hung()).began
    resumed.finish()
    (taken,) = receiver.taken
    assert json.loads(json.dumps(taken))["event"]["id"] == changes.began[0].hang.id
    end = changes_of(again, replace(hung(), jobs=()), replace(hung(), jobs=())).over
    assert [one.hang.id for one in end] == [changes.began[0].hang.id]
    forget_lock(after)


def test_a_hang_that_is_not_sure_yet_grows_old_over_a_restart(tmp_path: Path, said: list[str]) -> None:
    young = replace(hung(), jobs=(replace(hung().jobs[0], hung_for_seconds=None),))
    ledger = Ledger(tmp_path / "state", said.append)
    confirmation = Confirmation(30)
    confirmation.add(young, time.monotonic() - 40)
    with ledger.changing():
        ledger.hangs = confirmation.hangs
    forget_lock(ledger)
    after = Ledger(tmp_path / "state", said.append)
    assert len(Confirmation(30, after.hangs).add(young, time.monotonic()).began) == 1
    forget_lock(after)


def test_one_watch_has_a_state_file(tmp_path: Path, said: list[str]) -> None:
    ledger = Ledger(tmp_path / "state", said.append)
    with pytest.raises(StateError, match="another hangdoc watch"):
        Ledger(tmp_path / "state", said.append)
    forget_lock(ledger)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"schema": "hangdoc.watch-state/9"}', b'{"schema": "hangdoc.watch-state/2"}', b"\xff"],
)
def test_another_file_is_not_taken_for_a_state(tmp_path: Path, said: list[str], content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(StateError, match="move this one away"):
        Ledger(tmp_path / "state", said.append)
    assert (tmp_path / "state").read_bytes() == content


def test_a_state_file_where_none_can_be_written_is_said_at_once(tmp_path: Path, said: list[str]) -> None:
    with pytest.raises(StateError, match="cannot write"):
        Ledger(tmp_path / "missing" / "state", said.append)


def test_the_state_file_is_what_the_page_says(tmp_path: Path, said: list[str]) -> None:
    ledger = Ledger(tmp_path / "state", said.append)
    document = json.loads((tmp_path / "state").read_text())
    assert set(document) == {field.name for field in msgspec.structs.fields(State)}
    text = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
    assert document["schema"] in text
    assert all(f"`{name}`" in text for name in document)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
    forget_lock(ledger)


# --- evidence ----------------------------------------------------------------------------------------------------------


def test_the_oldest_hangs_make_room_but_never_the_newest(tmp_path: Path) -> None:
    for day in range(1, 6):
        for suffix in ("hangdoc", "txt", "html"):
            (tmp_path / f"hangdoc-hang-2026010{day}-120000-abc{day}.{suffix}").write_bytes(b"x" * 1000)
    foreign = tmp_path / "hangdoc-hang-notes.txt"
    foreign.write_bytes(b"x" * 100_000)
    evidence = EvidenceDirectory(tmp_path, page, 7000)
    assert evidence.prune() == 3
    assert (
        sorted({path.name[21:23] for path in tmp_path.glob("hangdoc-hang-2026*")}) == ["04", "05"]
        or evidence.bytes() == 6000
    )
    assert foreign.exists()
    kept = EvidenceDirectory(tmp_path, page, 1).keep(fires("HD302"), hung(), "abc")
    assert {path.name for path in tmp_path.iterdir()} == {
        foreign.name,
        *(path.name for path in (kept.bundle, kept.report, kept.page)),
    }


def test_without_a_bound_nothing_is_removed(tmp_path: Path) -> None:
    evidence = EvidenceDirectory(tmp_path, page)
    kept = [evidence.keep(fires("HD302"), hung(), "abc") for _ in range(3)]
    assert len({one.bundle for one in kept}) == 3
    assert all(one.bundle.exists() for one in kept)
    assert evidence.prune() == 0


def test_sizes() -> None:
    import click

    from hangdoc.cli.numbers import ByteSize

    convert: Callable[[str], int] = lambda text: ByteSize().convert(text, None, None)  # noqa: E731
    assert [convert(text) for text in ("1048576", "1M", "1MiB", "0.5g", "2T")] == [
        1 << 20,
        1 << 20,
        1 << 20,
        1 << 29,
        2 << 40,
    ]
    for text in ("", "M", "-1", "1X", "ten"):
        with pytest.raises(click.BadParameter):
            convert(text)
