"""The client of NCCL's RAS against servers that speak each version of its protocol, and against broken ones."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.gpu import ras_client
from hangdoc.observe.gpu.ras_answer import RasAnswerError, parse_answer
from hangdoc.observe.gpu.ras_client import (
    RasError,
    RasListener,
    RasSilent,
    ask,
    find_listener,
    parse_address,
)
from hangdoc_trainer.offspring import free_port
from tests.unit.ras_answers import Communicator, Member, json_answer, text_answer
from tests.unit.ras_server import Served, running

JOB = [Communicator(7, (Member(0, 11, (0, 0, 0, 0, 5)), Member(1, 12, (0, 0, 0, 0, 4))))]
TEXT, JSON = text_answer(JOB).decode(), json_answer(JOB).decode()


@contextlib.contextmanager
def listening(served: Served) -> Iterator[RasListener]:
    served.port = free_port()
    with running(served):
        yield find_listener(None, os.getuid(), parse_address(f"localhost:{served.port}"))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0", "::"])  # noqa: S104
def test_each_address_that_localhost_may_be(address: str) -> None:
    if ":" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("needs IPv6")
    with listening(Served([JSON], address=address)) as listener:
        assert listener.address == ("::1" if ":" in address else "127.0.0.1")
        assert ask(listener).decode() == JSON


def test_a_server_before_json() -> None:
    with listening(Served([JSON], texts=[TEXT], knows_json=False)) as listener:
        answer = parse_answer(ask(listener))
    assert (answer.form, [rank.pid for rank in answer.communicators[0].ranks]) == ("text", [11, 12])


def test_byte_by_byte() -> None:
    with listening(Served([JSON], mode="slow")) as listener:
        assert ask(listener, 20).decode() == JSON
        began = time.monotonic()
        with pytest.raises(RasError, match=r"no complete answer within 0\.5 s"):
            ask(listener, 0.5)
        assert time.monotonic() - began < 2


def test_an_answer_without_end() -> None:
    with listening(Served([JSON], mode="endless")) as listener, pytest.raises(RasError, match="more than 16 MiB"):
        ask(listener, 30)


def test_an_answer_that_is_cut() -> None:
    with (
        listening(Served([JSON], mode="cut")) as listener,
        pytest.raises(RasAnswerError, match="its answer is damaged"),
    ):
        parse_answer(ask(listener))


def test_a_connection_that_stays_open() -> None:
    with listening(Served([JSON], mode="open")) as listener, pytest.raises(RasError, match="no complete answer"):
        ask(listener, 1.0)


def test_nobody_acknowledges() -> None:
    with listening(Served([JSON], mode="silent")) as listener, pytest.raises(RasSilent, match="does not answer"):
        ask(listener)


def test_a_stopped_process_takes_the_connection() -> None:
    """Its kernel accepts, and it does not: as on a real card."""
    served = Served([JSON], port=free_port())
    with running(served) as child:
        os.kill(child.pid, signal.SIGSTOP)
        listener = find_listener(None, os.getuid(), parse_address(f"localhost:{served.port}"))
        began = time.monotonic()
        with pytest.raises(RasSilent, match="does not answer"):
            ask(listener)
        assert time.monotonic() - began < 3


@contextlib.contextmanager
def speaking(raw: bytes, times: int) -> Iterator[RasListener]:
    """Something that sends this to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            connection, _ = server.accept()
            with contextlib.suppress(OSError):
                for _ in range(times):
                    connection.sendall(raw)

        threading.Thread(target=speak, daemon=True).start()
        yield RasListener(None, os.getuid(), "127.0.0.1", server.getsockname()[1], frozenset())


def test_another_program_has_the_port() -> None:
    with speaking(b"220 mail.example ESMTP\r\n", 1) as listener, pytest.raises(RasError, match="is not NCCL's RAS"):
        ask(listener)


def test_a_line_without_end() -> None:
    with speaking(b"SERVER PROTOCOL " * 1_000, 100_000) as listener, pytest.raises(RasError, match="too long"):
        ask(listener)


def test_who_listens() -> None:
    port = free_port()
    with pytest.raises(RasError, match=f"no process of the ranks' user listens on port {port}"):
        find_listener(None, os.getuid(), parse_address(f"localhost:{port}"))
    with running(Served([JSON], port=port)):
        with pytest.raises(RasError, match=f"belongs to uid {os.getuid()}"):
            find_listener(None, 4_000_000, parse_address(f"localhost:{port}"))
        with pytest.raises(RasError, match="listens on port"):
            find_listener(None, os.getuid(), parse_address(f"10.1.2.3:{port}"))
        for host in ("127.0.0.1", "node7"):
            assert find_listener(None, os.getuid(), parse_address(f"{host}:{port}")).address == "127.0.0.1"


def test_another_user_takes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener is the user's when it is looked for, and another's when it is asked."""
    with listening(Served([JSON])) as listener:
        with pytest.raises(RasError, match=f"uid {os.getuid()} took the connection"):
            ask(listener._replace(user=4_000_000))
        monkeypatch.setattr(ras_client, "_check_owner", lambda listener, connection: None)
        assert ask(listener._replace(user=4_000_000)).decode() == JSON


@pytest.mark.parametrize("text", ["", "localhost", ":28028", "host:", "host:0", "host:65536", "host:x", "::1"])
def test_addresses_that_are_none(text: str) -> None:
    if text == "::1":  # as for NCCL, the last group is the port
        assert parse_address(text).port == 1
        return
    with pytest.raises(RasError, match="NCCL_RAS_ADDR"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("[::1]:28028") == ("::1", 28028)
    assert parse_address("localhost:28029") == ("localhost", 28029)
