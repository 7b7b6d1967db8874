"""Writes the Grafana dashboard: python -m deploy.dashboard. A test checks that the file is up to date, and that each metric and
label in it is exported."""

import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "grafana" / "hangdoc.json"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT = 24, 8
_COLOURS = {"healthy": "green", "waiting": "yellow", "hung": "red", "unknown": "purple"}


def _target(expression: str, legend: str, number: int, *, table: bool) -> dict[str, Any]:
    target: dict[str, Any] = {"datasource": _SOURCE, "expr": expression, "legendFormat": legend, "refId": "ABC"[number]}
    return target | ({"format": "table", "instant": True} if table else {})


def _panel(
    title: str,
    kind: str,
    expression: str,
    legend: str = "",
    *more: tuple[str, str],
    unit: str = "short",
    wide: int = 12,
    about: str = "",
) -> dict[str, Any]:
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for name, colour in _COLOURS.items()
        if legend == "{{verdict}}"
    ]
    return {
        "title": title,
        "description": about,
        "type": kind,
        "datasource": _SOURCE,
        "gridPos": {"w": wide, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": overrides},
        "targets": [
            _target(query, named, number, table=kind == "table")
            for number, (query, named) in enumerate([(expression, legend), *more])
        ],
    }


def panels() -> list[dict[str, Any]]:
    """All panels, placed from left to right and from top to bottom."""
    chosen = 'instance=~"$instance"'
    of_run = f'{chosen}, run=~"$run"'
    found = [
        _panel("Hangs now", "table", f"hangdoc_hang_seconds{{{of_run}}}", unit="s", wide=16,
               about="Confirmed hangs that are not over. `id` is the same in file names and messages."),
        _panel("Runs by verdict", "timeseries", f"sum by (verdict) (hangdoc_verdict{{{of_run}}})", "{{verdict}}", wide=8),
        _panel("Ranks", "timeseries", f"sum by (label) (hangdoc_ranks{{{of_run}}})", "{{label}}"),
        _panel("Longest time since a rank's last byte", "timeseries",
               f"max by (run) (hangdoc_rank_silent_seconds{{{of_run}}})", "{{run}}", unit="s"),
        _panel("Batches per minute of the slowest rank", "timeseries",
               f"min by (run) (deriv(hangdoc_rank_batches_done{{{of_run}}}[5m])) * 60", "{{run}}"),
        _panel("Findings", "table", f"hangdoc_finding{{{of_run}}}"),
        _panel("Hangs confirmed and resolved", "timeseries",
               f"sum(increase(hangdoc_hangs_total{{{chosen}}}[$__rate_interval]))", "confirmed",
               (f"sum(increase(hangdoc_hangs_resolved_total{{{chosen}}}[$__rate_interval]))", "resolved"), wide=8),
        _panel("Ranks not observed", "timeseries", f"sum by (run) (hangdoc_unseen_ranks{{{of_run}}})", "{{run}}", wide=8),
        _panel("Messages pending", "timeseries", f"hangdoc_messages_pending{{{chosen}}}", "{{instance}} {{target}}", wide=8),
        _panel("Messages delivered", "timeseries",
               f"sum by (target) (increase(hangdoc_messages_delivered_total{{{chosen}}}[$__rate_interval]))", "{{target}}",
               wide=8),
        _panel("Messages lost", "timeseries",
               f"sum by (target) (increase(hangdoc_messages_failed_total{{{chosen}}}[$__rate_interval])"
               f" + increase(hangdoc_messages_dropped_total{{{chosen}}}[$__rate_interval]))", "{{target}}", wide=8),
        _panel("Evidence on disk", "timeseries", f"hangdoc_evidence_bytes{{{chosen}}}", "{{instance}}", unit="bytes", wide=8),
        _panel("Duration of a look", "timeseries", f"hangdoc_look_seconds{{{chosen}}}", "{{instance}}", unit="s", wide=8),
        _panel("CPU of the watch", "timeseries",
               f"rate(process_cpu_seconds_total{{{chosen}, job=\"hangdoc\"}}[5m])", "{{instance}}",
               unit="percentunit", wide=8, about="Of one core; without the py-spy processes that it starts."),
        _panel("Memory of the watch", "timeseries", f"process_resident_memory_bytes{{{chosen}, job=\"hangdoc\"}}", "{{instance}}",
               unit="bytes", wide=8),
    ]  # fmt: skip
    left = top = 0
    for number, panel in enumerate(found, 1):
        place = panel["gridPos"]
        if left + place["w"] > _WIDTH:
            left, top = 0, top + _HEIGHT
        place |= {"x": left, "y": top}
        left += place["w"]
        panel["id"] = number
    return found


def dashboard() -> dict[str, Any]:
    """The whole dashboard (Grafana 9 or newer; the JSON model of its documentation)."""
    variables = [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
        *(
            {
                "name": name,
                "type": "query",
                "label": label,
                "datasource": _SOURCE,
                "query": f"label_values({metric}, {name})",
                "refresh": 2,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
            }
            for name, label, metric in (("instance", "Host", "hangdoc_build_info"), ("run", "Run", "hangdoc_verdict"))
        ),
    ]
    return {
        "uid": "hangdoc",
        "title": "hangdoc: training runs",
        "tags": ["hangdoc"],
        "schemaVersion": 37,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels(),
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text())
