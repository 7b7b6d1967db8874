"""Which hosts: node sets, groups, a Slurm job's nodes."""

import re
import subprocess

from ClusterShell.NodeSet import NodeSet, NodeSetException

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")
"""A host's name or address, perhaps with a user; a leading `-` would be an option of ssh."""
_BRACKET = re.compile(r"\[([^\]]*)")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_DIGITS = 18
_SLURM_SECONDS = 20
MAX_HOSTS = 100_000


class HostsError(Exception):
    """No hosts can be made of it; one sentence with the remedy."""


def expand(text: str) -> tuple[str, ...]:
    """The hosts of `node[0-63],@group`, or of `slurm:JOBID`; raises HostsError."""
    if text.startswith("slurm:"):
        text = _of_job(text.removeprefix("slurm:"))
    _check_ranges(text)
    try:
        nodes = NodeSet(text)
        if len(nodes) > MAX_HOSTS:
            raise HostsError(f"--hosts {text[:60]} names {len(nodes)} hosts: more than {MAX_HOSTS}.")
        names = tuple(map(str, nodes))
    except NodeSetException as error:
        raise HostsError(
            f"--hosts {text[:60]!r} can't be read ({error}): write for instance node[0-63] or @group."
        ) from None
    if not names:
        raise HostsError(f"--hosts {text[:60]!r} names no host: is the group defined (`nodeset -l`)?")
    odd = next((name for name in names if not _NAME.fullmatch(name)), None)
    if odd is not None:
        raise HostsError(f"--hosts: {odd[:60]!r} is not the name of a host.")
    return names


def _check_ranges(text: str) -> None:
    """ClusterShell makes a number of each host of a range before it can be asked how many there are."""
    for low, high in (pair for inside in _BRACKET.findall(text) for pair in _RANGE.findall(inside)):
        if int(high[:_DIGITS]) - int(low[:_DIGITS]) >= MAX_HOSTS or len(high) > _DIGITS:
            raise HostsError(f"--hosts {text[:60]}: a range of more than {MAX_HOSTS} hosts.")


def _of_job(job: str) -> str:
    if not re.fullmatch(r"[0-9]+([_.+][0-9]+)?", job):
        raise HostsError(f"--hosts slurm:{job[:40]}: a Slurm job's number is expected, as squeue shows it.")
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%N"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SLURM_SECONDS, check=False)
    except FileNotFoundError:
        raise HostsError(f"--hosts slurm:{job}: there is no squeue here; name the nodes instead.") from None
    except subprocess.TimeoutExpired:
        raise HostsError(f"--hosts slurm:{job}: squeue did not answer within {_SLURM_SECONDS} s.") from None
    nodes = " ".join(done.stdout.split())
    if done.returncode or not nodes:
        why = (done.stderr.strip().splitlines() or ["no such job, or it has no nodes yet"])[-1]
        raise HostsError(f"--hosts slurm:{job}: {why[:200]}.")
    return nodes.replace(" ", ",")
