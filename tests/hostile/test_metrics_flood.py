"""Any user of the host may connect to the metrics of root's watch: that takes neither its threads nor its descriptors."""

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from hangdoc.watch import metrics


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(metrics, "_CONNECTION_SECONDS", 0.3, raising=False)
    _, port, stop = metrics.serve("127.0.0.1", 0)
    yield port
    stop()


def test_connections_are_answered_one_after_the_other(port: int) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    clients = []
    try:
        for number in range(40):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            clients.append(client)
            if number < 4:
                _send_when_connected(client, b"GET /met")
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert threading.active_count() - threads < 4
            assert len(os.listdir("/proc/self/fd")) - descriptors - len(clients) < 6
            time.sleep(0.05)
        for client in clients:
            client.close()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=200) as answer:
            assert b"hangdoc_looks_total" in answer.read()
    finally:
        for client in clients:
            client.close()


def _send_when_connected(client: socket.socket, text: bytes) -> None:
    client.settimeout(100)
    client.sendall(text)


def test_a_client_that_drips_is_cut(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 100) as client:
        began = time.monotonic()
        client.settimeout(0.05)
        while time.monotonic() - began < 100:
            try:
                client.sendall(b"x")
                if client.recv(1000) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < 60
