"""What `deploy/` holds says the same as the code, and is valid for those who will read it."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from deploy import dashboard
from hangdoc.cli.group import cli
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Cards, Snapshot
from hangdoc.version import __version__
from hangdoc.watch.act import Reaction, Targets
from hangdoc.watch.confirm import Confirmation
from hangdoc.watch.evidence import EvidenceDirectory
from hangdoc.watch.loop import Seen
from hangdoc.watch.metrics import Exposed
from hangdoc.watch.state import Ledger
from tests import portable
from tests.rules import fires
from tests.rules.shapes import card

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
GIVEN_BY_PROMETHEUS = {"instance", "job"}


def test_the_steps_of_the_image(tmp_path: Path) -> None:
    """Its file is a script of this checkout here, and its directories are below a temporary one."""
    text = (
        (DEPLOY / "container/Containerfile")
        .read_text()
        .replace("/usr/local", str(tmp_path))
        .replace("/var/cache", str(tmp_path))
    )
    steps = dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    source, target = steps["COPY"].split()
    assert source == "dist/hangdoc.pyz"
    portable.make(tmp_path / "lib").rename(target)
    variables = dict(word.split("=", 1) for word in steps["ENV"].split())
    assert variables["HANGDOC_PYZ"] == target
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **variables}
    done = subprocess.run(["sh", "-c", steps["RUN"]], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"hangdoc {__version__}\n", done
    program, command = json.loads(steps["CMD"])
    assert (program, command in cli.list_commands(click.Context(cli))) == ("hangdoc", True)


def scrape(folder: Path, snapshot: Snapshot) -> str:
    """What a scrape gets, on a host with cards. If a run hangs, a message waits."""
    cards = Cards(cards=(card(0, 100), card(1, 101)))
    snapshot = replace(snapshot, hosts=tuple(replace(host, cards=cards) for host in snapshot.hosts))
    answer = diagnose(snapshot, patience=0.0)
    confirmation, ledger = Confirmation(0), Ledger(None, lambda text: None)
    where = Targets(command=("true",), webhook="http://127.0.0.1:9/")
    reaction = Reaction(EvidenceDirectory(folder, lambda *_: ""), ledger, where, lambda text: None, lambda kept: None)
    exposed = Exposed()
    for _ in range(2):
        changes = confirmation.add(answer, time.monotonic())
        if changes.began:
            reaction.act(snapshot, answer, changes.began, changes.over, confirmation.hangs)
        exposed.add(Seen(snapshot, answer, changes, 1.0, confirmation.hangs), reaction)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exposed)
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of each exported sample, by its name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scrape(tmp_path, fires("HD101"))):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_expression(expression: str, samples: dict[str, set[str]]) -> None:
    """Each metric is exported, and has the labels that it is asked for."""
    names = re.findall(r"\b(?:hangdoc|process)_\w+", expression)
    assert names, expression
    known = set().union(*(samples[name] for name in names)) | GIVEN_BY_PROMETHEUS  # KeyError: not exported
    asked = set(re.findall(r"(\w+)\s*=~?\s*\"", expression))
    asked |= {name for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in re.split(r",\s*", group)}
    assert asked <= known, expression


def test_the_dashboard_shows_what_is_exported(samples: dict[str, set[str]]) -> None:
    assert dashboard.PATH.read_text() == dashboard.text(), "run python -m deploy.dashboard"
    written = json.loads(dashboard.PATH.read_text())
    assert len({panel["id"] for panel in written["panels"]}) == len(written["panels"]) > 10
    taken: set[tuple[int, int]] = set()
    for panel in written["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
        for target in panel["targets"]:
            check_expression(target["expr"], samples)
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            names = re.findall(r"\b(?:hangdoc|process)_\w+", target["expr"])
            assert shown <= set().union(*(samples[name] for name in names)) | GIVEN_BY_PROMETHEUS
    for variable in written["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
        assert label in samples[metric] | GIVEN_BY_PROMETHEUS


def test_the_alerts_ask_for_what_is_exported(samples: dict[str, set[str]]) -> None:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            check_expression(rule["expr"], samples)
            texts = " ".join(rule["annotations"].values())
            named = set(re.findall(r"\$labels\.(\w+)", texts))
            metrics = re.findall(r"\bhangdoc_\w+", rule["expr"])
            assert named <= set().union(*(samples[name] for name in metrics)) | GIVEN_BY_PROMETHEUS, rule["alert"]


def test_every_metric_is_on_the_page_for_operators(samples: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    exported = {name for name in samples if name.startswith("hangdoc_")}
    assert set(re.findall(r"^\| `(hangdoc_\w+)", page, re.MULTILINE)) == exported
    for name in exported:
        labels = re.search(rf"^\| `{name}(?:{{([^}}]*)}})?`", page, re.MULTILINE)
        assert labels is not None
        assert set(filter(None, re.split(r",\s*", labels[1] or ""))) == samples[name], name


def promtool(*arguments: str, text: str | None = None) -> None:
    found = shutil.which("promtool", path=PATH)
    if found is None:
        pytest.skip("promtool is not here (Debian: prometheus)")
    done = subprocess.run([found, *arguments], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules_their_tests_and_the_configuration() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(ALERTS.with_name("alerts.test.yml")))
    promtool("check", "config", str(ALERTS.with_name("scrape.yml")))


def test_promtool_finds_nothing_wrong_with_the_names(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^(# (?:HELP|TYPE) \w+_bytes) ", r"\1 ", scrape(tmp_path, fires("HD101")).replace("# EOF\n", ""))
    families = {name for name, kind in re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE) if kind == "counter"}
    for name in families:  # promtool reads Prometheus' own format, where a counter's family has the suffix
        text = re.sub(rf"(?m)^# (HELP|TYPE) {name} ", rf"# \1 {name}_total ", text)
    promtool(
        "check", "metrics", text="\n".join(line for line in text.splitlines() if not line.startswith("# UNIT")) + "\n"
    )


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze", path=PATH)
    if analyze is None:
        pytest.skip("systemd-analyze is not here (Debian: systemd)")
    hangdoc = Path(sys.executable).with_name("hangdoc")
    unit = tmp_path / "hangdoc-watch.service"
    unit.write_text((DEPLOY / "systemd" / unit.name).read_text().replace("/opt/hangdoc/bin/hangdoc", str(hangdoc)))
    done = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def manifests() -> list[Any]:
    return [
        document
        for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]


def test_the_manifests_are_valid() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    found = manifests()
    assert [one["kind"] for one in found] == ["Namespace", "DaemonSet", "Job"]
    for one in found:
        validator.validate(one, "1.33", strict=True)
    broken = json.loads(json.dumps(found[1]).replace("containerPort", "containersPort"))
    with pytest.raises(validator.ValidationError):
        validator.validate(broken, "1.33", strict=True)


def options_of(words: list[str]) -> set[str]:
    return {word.split("=")[0] for word in words if word.startswith("--")}


def test_commands_have_the_options_that_they_are_given() -> None:
    watch = cli.get_command(click.Context(cli), "watch")
    assert watch is not None
    known = {name for parameter in watch.params for name in parameter.opts}
    commands = [container.get("command", []) + container.get("args", [])
                for one in manifests() for spec in [one.get("spec", {}).get("template", {}).get("spec", {})]
                for container in [*spec.get("initContainers", []), *spec.get("containers", [])]]  # fmt: skip
    ours = [words for words in commands if words and words[0] == "hangdoc"]
    assert len(ours) == 2
    unit = (DEPLOY / "systemd" / "hangdoc-watch.service").read_text().replace("\\\n", " ")
    ours.append(re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split())  # type: ignore[index]
    job = (DEPLOY / "slurm" / "train.sbatch").read_text().replace("\\\n", " ")
    line = re.sub(r'"srun [^"]*"', "srun", re.search(r'^"\$HANGDOC" watch .*$', job, re.MULTILINE)[0])  # type: ignore[index]
    ours.append(line.split())
    for words in ours:
        assert options_of(words) <= known, words
        assert len(options_of(words)) >= 3


def test_the_batch_script_is_a_script() -> None:
    subprocess.run(["bash", "-n", DEPLOY / "slurm" / "train.sbatch"], check=True)
