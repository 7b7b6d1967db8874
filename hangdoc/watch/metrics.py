"""The last diagnosis as OpenMetrics (prometheus_client)."""

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from hangdoc.diagnosis import Diagnosis

VERDICTS = ("healthy", "waiting", "hung", "unknown")
LABELS = ("computing", "blocked", "dead", "unknown")


class Exposed(Collector):
    """What a scrape gets: the last look, never a new one."""

    def __init__(self) -> None:
        self.diagnosis: Diagnosis | None = None
        self.looks = self.hangs = 0
        self.seconds = 0.0

    def collect(self) -> Iterable[Any]:
        """Every family anew: ranks and jobs come and go."""
        yield CounterMetricFamily("hangdoc_looks", "Looks taken.", value=self.looks)
        yield CounterMetricFamily("hangdoc_hangs", "Hangs confirmed.", value=self.hangs)
        yield GaugeMetricFamily("hangdoc_look_seconds", "How long the last look took.", value=self.seconds)
        verdict = GaugeMetricFamily("hangdoc_verdict", "1 for the job's verdict.", labels=("job", "verdict"))
        labels = GaugeMetricFamily("hangdoc_ranks", "Ranks by label.", labels=("job", "label"))
        unseen = GaugeMetricFamily("hangdoc_unseen_ranks", "Ranks nobody could look at.", labels=("job",))
        finding = GaugeMetricFamily(
            "hangdoc_finding", "1 for each finding.", labels=("job", "code", "name", "severity")
        )
        silent = GaugeMetricFamily("hangdoc_rank_silent_seconds", "Since a rank's last byte.", labels=("job", "rank"))
        done = GaugeMetricFamily("hangdoc_rank_batches_done", "Batches that a rank has done.", labels=("job", "rank"))
        for job in self.diagnosis.jobs if self.diagnosis is not None else ():
            for one in VERDICTS:
                verdict.add_metric((job.id, one), float(job.verdict == one))
            for label in LABELS:
                labels.add_metric((job.id, label), sum((view.label or "unknown") == label for view in job.ranks))
            unseen.add_metric((job.id,), len(job.unseen))
            for code, name, severity in sorted({(f.code, f.name, f.severity) for f in job.findings}):
                finding.add_metric((job.id, code, name, severity), 1)
            for view in job.ranks:
                if view.silent_seconds is not None:
                    silent.add_metric((job.id, str(view.rank)), view.silent_seconds)
                if view.batches_done is not None:
                    done.add_metric((job.id, str(view.rank)), view.batches_done)
        yield from (verdict, labels, unseen, finding, silent, done)


def serve(address: str, port: int) -> tuple[Exposed, int, Callable[[], None]]:
    """Expose on an address; the port (another than 0 where 0 was asked for) and how to stop. Raises OSError."""
    exposed = Exposed()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exposed)
    server, _ = start_http_server(port, address, registry)
    assert isinstance(server, WSGIServer)  # noqa: S101
    return exposed, server.server_port, server.shutdown
