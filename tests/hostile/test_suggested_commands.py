"""The commands that findings suggest are pasted into a root shell: no address, host, path or name from a bundle is shell text in
them."""

import ast
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from hangdoc import codec
from hangdoc.diagnosis import Finding
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.rules import all_rules
from hangdoc.reasoning.text.next_steps import Command, command, is_host, operand, to_host
from hangdoc.snapshot import Host, Snapshot
from tests.rules import fires

ROOT = Path(__file__).parents[2]
EVIL = (
    "$(touch PWNED)", "`touch PWNED`", ";touch PWNED", "|touch PWNED", "\ntouch PWNED", "'", '"', "# x\ntouch PWNED",
    " -o PWNED", "&&a", ">PWNED", "-PWNED", "*", "~", "\\",
)  # fmt: skip
_ADDRESSES = {
    "local_address",
    "remote_address",
    "address",
    "addresses",
    "master_address",
    "master",
    "endpoint",
    "networks",
}
_NAMES = {"name", "path", "cwd", "file", "host", "hostname", "asked_as", "paths", "digest_of"}


def spoiled(value: object, evil: str, key: str = "") -> object:
    """JSON with `evil` at the end of each address, path and name."""
    if isinstance(value, dict):
        return {name: spoiled(inner, evil, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [spoiled(inner, evil, key) for inner in value]
    return value + evil if isinstance(value, str) and key in _ADDRESSES | _NAMES else value


def shell_words(line: str) -> list[str]:
    """The words of a line and its operators, as a shell splits them, without the comment at the end."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "#", True
    return list(lexer)


def commands_of(snapshot: Snapshot) -> Iterator[tuple[Finding, str]]:
    for patience in (0.0, 30.0):
        diagnosis = diagnose(snapshot, patience=patience)
        assert not any("failed" in problem for problem in diagnosis.problems)
        for job in diagnosis.jobs:
            for finding in job.findings:
                for line in finding.commands:
                    yield finding, line


_CONSTANT = {"hangdoc snapshot -o $(hostname).hangdoc   # on every host", "hangdoc diagnose *.hangdoc",
             "dmesg -T | grep -i -E 'oom|killed process|segfault|traps:' | tail"}  # fmt: skip


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("code", [rule.code for rule in all_rules()])
def test_no_rule_suggests_shell_text(code: str, evil: str) -> None:
    raw = msgspec.to_builtins(fires(code))
    snapshot = msgspec.convert(spoiled(raw, evil), Snapshot)
    for finding, line in commands_of(snapshot):
        if line.partition("   # on ")[0] in {one.partition("   # on ")[0] for one in _CONSTANT}:
            continue
        assert "\n" not in line.partition("   # ")[2], (finding.code, line)
        plain, _, _ = line.partition("   # ")
        operators = [word for word in shell_words(plain) if set(word) <= set("();<>|&")]
        assert operators in ([], ["|"]), (finding.code, line)
        unquoted = _unquoted(plain)
        assert not set(unquoted) & set("$`\\*~\n#"), (finding.code, line)


def _unquoted(line: str) -> str:
    """What of a line is outside of single quotes, in which nothing has a meaning, and of the double quotes with which shlex
    writes single quotes."""
    outside, inside = [], False
    for piece in line.replace("'\"'\"'", "").split("'"):
        if not inside:
            outside.append(piece)
        inside = not inside
    return "".join(outside)


@pytest.mark.parametrize(
    "text", [*EVIL, "", "a b", "-f", "10.0.0.1;x", "h\n", "x" * 300, "fe80::1%$(x)", "a/b", "a..", "::1 x"]
)
def test_what_is_no_host_is_left_out(text: str) -> None:
    assert not is_host(text)
    assert to_host("ping", text, address=text) == ()
    assert command("id", host=text).line == "id"


_HOSTS = ("10.0.0.1", "fe80::1", "fe80::1%eth0", "::ffff:10.0.0.1", "node1", "node_1.cluster.local", "h0#1", "a")


@pytest.mark.parametrize("text", _HOSTS)
def test_hosts_and_addresses_are_kept(text: str) -> None:
    assert to_host("ping", "-c", "3", text, address=text)[0].words[-1] == text
    assert shlex.split(command("ping", text, host="h1").line, comments=True) == ["ping", text]


def test_a_path_is_no_option() -> None:
    assert operand("-rf") == "./-rf"
    assert shlex.split(Command(("ls", operand("-a;b c")), into=("wc", "-l")).line) == [
        "ls",
        "./-a;b c",
        "|",
        "wc",
        "-l",
    ]


def test_hosts_with_odd_names_are_not_in_commands() -> None:
    """A run on several hosts has the host of each command in a comment."""
    snapshot = codec.read(next((ROOT / "tests" / "corpus").glob("trainer_rank_stops.hangdoc")))
    (host,) = snapshot.hosts

    def named(name: str, keep: Callable[[int], bool]) -> Host:
        return msgspec.structs.replace(
            host, name=name, machine_id=name,
            processes=tuple(p for p in host.processes if p.identity is None or keep(p.identity.rank)),
        )  # fmt: skip

    two = Snapshot(hangdoc="t", hosts=(named("a\nreboot", lambda n: n > 0), named("b", lambda n: n == 0)))
    lines = [line for _, line in commands_of(two)]
    assert lines
    assert not any("reboot" in line for line in lines)


def test_only_constants_are_written_as_a_line() -> None:
    wrong = []
    for path in (ROOT / "hangdoc").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "constant":
                wrong += [f"{path.name}:{node.lineno}" for one in node.args if not isinstance(one, ast.Constant)]
            if isinstance(node, ast.keyword) and node.arg == "constant" and path.name != "next_steps.py":
                wrong.append(f"{path.name}:{node.value.lineno}")
    assert not wrong
