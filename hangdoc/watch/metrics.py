"""Metrics of the last look and of the watch itself, as OpenMetrics (prometheus_client). Names follow Prometheus' conventions:
base units as suffixes, `_total` for counters. The label of a run is `run`, because Prometheus uses `job` for targets.

Any user of the host may connect. So one thread answers one connection after the other, and each has a time limit.
"""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from hangdoc.diagnosis import Diagnosis, RankView
from hangdoc.render import words
from hangdoc.version import __version__
from hangdoc.watch.act import Reaction
from hangdoc.watch.hangs import Hang
from hangdoc.watch.loop import Seen
from hangdoc.watch.state import Counts

VERDICTS = ("healthy", "waiting", "hung", "unknown")
LABELS = ("computing", "blocked", "dead", "unknown")
TARGETS = ("webhook", "on-hang")
_CONNECTION_SECONDS = 2.0
"""For one connection. A scrape takes some milliseconds."""


class Exposed(Collector):
    """The metrics of the last look. A scrape starts no look."""

    def __init__(self) -> None:
        self._diagnosis: Diagnosis | None = None
        self._hangs: tuple[Hang, ...] = ()
        self._counts = Counts()
        self._pending: Callable[[], dict[str, int]] = dict
        self._seconds = self._at = 0.0
        self._bytes = 0

    def add(self, seen: Seen, reaction: Reaction) -> None:
        """Store a look and what the watch did about it."""
        self._diagnosis, self._seconds, self._at = seen.diagnosis, seen.seconds, time.time()
        self._hangs = tuple(hang for hang in seen.hangs if hang.reported)
        self._counts, self._pending, self._bytes = reaction.ledger.counts, reaction.pending, reaction.evidence_bytes

    def collect(self) -> Iterable[Any]:
        """Build all families at each scrape, because ranks and jobs change."""
        yield from self._watch_metrics()
        yield from self._job_metrics()

    def _watch_metrics(self) -> Iterator[Any]:
        counts = self._counts
        info = GaugeMetricFamily("hangdoc_build_info", "1; the version is a label.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info
        yield CounterMetricFamily("hangdoc_looks", "Looks taken.", value=counts.looks)
        yield CounterMetricFamily("hangdoc_hangs", "Hangs confirmed.", value=counts.hangs)
        yield CounterMetricFamily(
            "hangdoc_hangs_resolved", "Hangs confirmed earlier that are over.", value=counts.resolved
        )
        yield GaugeMetricFamily("hangdoc_look_seconds", "Duration of the last look.", value=self._seconds)
        yield GaugeMetricFamily(
            "hangdoc_last_look_timestamp_seconds", "When the last look ended, in Unix time.", value=self._at
        )
        yield GaugeMetricFamily(
            "hangdoc_evidence_bytes", "Size of all evidence in the output directory.", value=self._bytes
        )
        waiting = GaugeMetricFamily("hangdoc_messages_pending", "Messages not yet delivered.", labels=("target",))
        for target, number in self._pending().items():
            waiting.add_metric((target,), number)
        yield waiting
        for name, text, by_target in (
            ("delivered", "Messages delivered to their target.", counts.delivered),
            ("failed", "Messages that their target refused.", counts.failed),
            ("dropped", "Messages dropped because the queue was full.", counts.dropped),
            ("retried", "Delivery attempts that failed and are retried.", counts.retries),
        ):
            family = CounterMetricFamily(f"hangdoc_messages_{name}", text, labels=("target",))
            for target in TARGETS:
                family.add_metric((target,), by_target.get(target, 0))
            yield family

    def _job_metrics(self) -> Iterator[Any]:
        hangs = GaugeMetricFamily("hangdoc_hang_seconds", "How long ago each confirmed hang that is not over was first seen.",
                                  labels=("run", "id", "code", "name"))  # fmt: skip
        for hang in self._hangs:
            hangs.add_metric((hang.job, hang.id, hang.code, hang.name), time.monotonic() - hang.since)
        verdict = GaugeMetricFamily("hangdoc_verdict", "1 for the job's verdict.", labels=("run", "verdict"))
        labels = GaugeMetricFamily("hangdoc_ranks", "Ranks by label.", labels=("run", "label"))
        unseen = GaugeMetricFamily("hangdoc_unseen_ranks", "Ranks that were not observed.", labels=("run",))
        finding = GaugeMetricFamily(
            "hangdoc_finding", "1 for each finding.", labels=("run", "code", "name", "severity")
        )
        silent = GaugeMetricFamily(
            "hangdoc_rank_silent_seconds", "Seconds since a rank's last byte.", labels=("run", "rank")
        )
        done = GaugeMetricFamily("hangdoc_rank_batches_done", "Batches that a rank has done.", labels=("run", "rank"))
        for job in self._diagnosis.jobs if self._diagnosis is not None else ():
            for verdict_name in VERDICTS:
                verdict.add_metric((job.id, verdict_name), float(job.verdict == verdict_name))
            for label in LABELS:
                labels.add_metric((job.id, label), sum(_name_label(view) == label for view in job.ranks))
            unseen.add_metric((job.id,), len(job.unseen))
            for code, name, severity in sorted({(f.code, f.name, f.severity) for f in job.findings}):
                finding.add_metric((job.id, code, name, severity), 1)
            for view in job.ranks:
                if view.silent_seconds is not None:
                    silent.add_metric((job.id, str(view.rank)), view.silent_seconds)
                if view.batches_done is not None:
                    done.add_metric((job.id, str(view.rank)), view.batches_done)
        yield from (hangs, verdict, labels, unseen, finding, silent, done)
        yield from self._gpu_metrics()

    def _gpu_metrics(self) -> Iterator[Any]:
        """Of the ranks whose card is known."""
        use = GaugeMetricFamily(
            "hangdoc_rank_gpu_utilisation_percent",
            "How much of the time a kernel ran on a rank's card.",
            labels=("run", "rank"),
        )
        power = GaugeMetricFamily("hangdoc_rank_gpu_power_watts", "Power of a rank's card.", labels=("run", "rank"))
        errors = GaugeMetricFamily(
            "hangdoc_rank_gpu_errors", "Kinds of errors of a rank's card: Xids, ECC.", labels=("run", "rank")
        )
        for job in self._diagnosis.jobs if self._diagnosis is not None else ():
            for view in job.ranks:
                if (gpu := view.gpu) is None:
                    continue
                names = (job.id, str(view.rank))
                if gpu.utilisation is not None:
                    use.add_metric(names, gpu.utilisation)
                if gpu.power_watts is not None:
                    power.add_metric(names, gpu.power_watts)
                errors.add_metric(names, len(gpu.errors))
        yield from (use, power, errors)


class _Handler(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _Server(WSGIServer):
    """One thread. The kernel keeps a connection to itself until the client has sent something."""

    request_queue_size = 16

    def server_activate(self) -> None:
        """Listen."""
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, math.ceil(_CONNECTION_SECONDS))
        super().server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer one connection. It is ended when its time is over, however slowly the client sends or reads."""
        end = threading.Timer(_CONNECTION_SECONDS, _shut_down, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request(request, client_address)
        finally:
            end.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away is no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _name_label(view: RankView) -> str:
    """The label of a rank, for a line over many looks. One that makes progress and waits for about half of the time is blocked in
    some and computing in others."""
    return "computing" if view.label == "blocked" and words.moves(view) else view.label or "unknown"


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)


def serve(address: str, port: int) -> tuple[Exposed, int, Callable[[], None]]:
    """Serve the metrics on an address. Returns them, the port (a free one if `port` is 0), and a function that stops the server.
    Raises OSError."""
    exposed = Exposed()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exposed)
    ProcessCollector(registry=registry)
    family, *_, (host, *_) = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    kind = _Server6 if family == socket.AF_INET6 else _Server
    server = make_server(str(host), port, make_wsgi_app(registry), kind, _Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return exposed, server.server_port, server.shutdown
