"""Hosts that an agent names: ClusterShell finds the members of a group with a shell, so nothing that an agent writes is expanded
beyond names and ranges."""

from pathlib import Path

import pytest

from hangdoc.agents.confined import Confined
from hangdoc.agents.looks import Looks
from hangdoc.commands.errors import CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.fleet import hosts
from hangdoc.fleet.hosts import HostsError, expand

_EVIL = (
    "@slurm:$(touch${{IFS}}{mark})", "@slurm:`touch\t{mark}`", "@slurm:x;touch\t{mark}", "@$(touch {mark})",
    "@slurm:a|touch {mark}", "node1,@slurm:$(touch {mark})", "@*", "@slurm:a", "slurm:1", "node1\n@slurm:a",
    "node1&@slurm:a", "node1!@slurm:a", "node1^@slurm:a", "*", "-oProxyCommand=x", "%host", "a b",
)  # fmt: skip


def looks(given: str | None) -> Looks:
    fleet = Hosts(hosts=given, via="echo {host}", ssh_option=(), remote_command="hangdoc", fanout=1, host_timeout=2.0)
    return Looks(Confined(()), fleet)


@pytest.fixture
def upcalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that each upcall of ClusterShell creates."""
    mark = tmp_path / "upcall"
    (tmp_path / "groups.conf").write_text(
        f"[Main]\ndefault: slurm\n[slurm]\nmap: touch {mark}; echo $GROUP >/dev/null; echo node[1-2]\n"
        f"all: touch {mark}; echo node[1-2]\nlist: touch {mark}; echo a b\n"
    )
    from ClusterShell import NodeSet

    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(tmp_path))
    NodeSet.set_std_group_resolver_config(str(tmp_path / "groups.conf"))
    yield mark
    NodeSet.set_std_group_resolver(None)


@pytest.mark.parametrize("given", [None, "node[1-2]", "@slurm:a"])
@pytest.mark.parametrize("evil", _EVIL)
def test_the_hosts_of_an_agent_run_nothing(evil: str, given: str | None, upcalls: Path, tmp_path: Path) -> None:
    server = looks(given)  # the user's own group
    upcalls.unlink(missing_ok=True)
    text = evil.format(mark=tmp_path / "PWNED")
    if text != given:
        with pytest.raises(CommandError, match="only names and ranges"):
            server.fleet(text)
    assert not upcalls.exists()
    assert not (tmp_path / "PWNED").exists()


def test_the_group_of_the_user_is_expanded_once(upcalls: Path) -> None:
    """At the start. An agent may name it as the user did, or its hosts."""
    server = looks("@slurm:a")
    assert upcalls.exists()
    upcalls.unlink()
    assert server.fleet("@slurm:a").names() == ("node1", "node2")
    assert server.fleet("node[1-2]").names() == ("node1", "node2")
    with pytest.raises(CommandError, match="may not observe node3"):
        server.fleet("node[2-3]")
    assert not upcalls.exists()


def test_the_nodes_of_a_slurm_job_are_names(upcalls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_list_nodes_of_job", lambda job: "node1,@slurm:a")
    with pytest.raises(HostsError):
        expand("slurm:1")
    assert not upcalls.exists()


_BROKEN = ("@@x", "@nosuchsource:x", "[[0-5]]", "a[0-5", "a[0-1/0]", "a[5-1]", "a[0-3]!@@x")


@pytest.mark.parametrize("text", _BROKEN)
def test_each_error_of_clustershell_is_one_sentence(text: str, upcalls: Path) -> None:
    with pytest.raises(HostsError, match=r"--hosts.*\.$"):
        expand(text)
