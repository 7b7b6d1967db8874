"""Expands node sets, groups and Slurm jobs to host names.

ClusterShell finds the members of a group by an upcall: it runs a command of the site's configuration in a shell, with the name of
the group in it. So only the user's own command line may name groups (`expand`), nobody else's text (`expand_plain`).
"""

import re
import subprocess

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")
"""A host name or address, optionally with a user. A leading `-` would be an option of ssh."""
_PLAIN = re.compile(r"[A-Za-z0-9_.:,\[\]-]+")
"""A node set of names, numbers and ranges alone."""
_BRACKET = re.compile(r"\[([^\]]*)")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_DIGITS = 18
_SLURM_SECONDS = 20
MAX_HOSTS = 100_000


class HostsError(Exception):
    """The hosts can't be determined. The message gives the problem and the remedy."""


def expand(text: str) -> tuple[str, ...]:
    """The hosts of `node[0-63],@group`, or of `slurm:JOBID`, that the user has written; raises HostsError."""
    if text.startswith("slurm:"):
        return _expand_names(_list_nodes_of_job(text.removeprefix("slurm:")), groups=False)
    return _expand_names(text, groups=True)


def expand_plain(text: str) -> tuple[str, ...]:
    """The hosts of `node[0-63],login`. Runs nothing, whatever the text is. Raises HostsError."""
    if _PLAIN.fullmatch(text) is None or text.startswith("slurm:"):
        raise HostsError(
            f"hosts {text[:60]!r}: only names and ranges are allowed here, for example node[0-63]. Groups and Slurm jobs can be "
            "given with --hosts when the server is started."
        )
    return _expand_names(text, groups=False)


def _expand_names(text: str, *, groups: bool) -> tuple[str, ...]:
    _check_ranges(text)
    try:
        nodes = NodeSet(text, resolver=None if groups else RESOLVER_NOGROUP)
        size = len(nodes)
        names = tuple(map(str, nodes)) if size <= MAX_HOSTS else ()
    except (
        Exception
    ) as error:  # the classes of ClusterShell's errors have no common base: node sets, groups, their sources
        why = " ".join(str(error).split())[:200]
        raise HostsError(f"--hosts {text[:60]!r} cannot be read ({why}). Examples: node[0-63], @group.") from None
    if size > MAX_HOSTS:
        raise HostsError(f"--hosts {text[:60]} has {size} hosts. The limit is {MAX_HOSTS}.")
    if not names:
        raise HostsError(f"--hosts {text[:60]!r} has no hosts. Is the group defined? `nodeset -l` lists the groups.")
    invalid = next((name for name in names if not _NAME.fullmatch(name)), None)
    if invalid is not None:
        raise HostsError(f"--hosts: {invalid[:60]!r} is not a valid host name.")
    return names


def _check_ranges(text: str) -> None:
    """Refuse huge ranges. ClusterShell would expand a range in memory before its size is known."""
    for low, high in (pair for inside in _BRACKET.findall(text) for pair in _RANGE.findall(inside)):
        if int(high[:_DIGITS]) - int(low[:_DIGITS]) >= MAX_HOSTS or len(high) > _DIGITS:
            raise HostsError(f"--hosts {text[:60]} has a range of more than {MAX_HOSTS} hosts, which is the limit.")


def _list_nodes_of_job(job: str) -> str:
    if not re.fullmatch(r"[0-9]+([_.+][0-9]+)?", job):
        raise HostsError(f"--hosts slurm:{job[:40]}: give the number of a Slurm job, as squeue shows it.")
    command = ["squeue", "--noheader", "--jobs", job, "--format", "%N"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SLURM_SECONDS, check=False)
    except FileNotFoundError:
        raise HostsError(
            f"--hosts slurm:{job}: squeue is not installed on this host. Name the nodes instead."
        ) from None
    except subprocess.TimeoutExpired:
        raise HostsError(
            f"--hosts slurm:{job}: squeue did not respond within {_SLURM_SECONDS} s. Name the nodes instead."
        ) from None
    nodes = " ".join(done.stdout.split())
    if done.returncode or not nodes:
        why = (done.stderr.strip().splitlines() or ["no such job, or it has no nodes yet"])[-1]
        raise HostsError(f"--hosts slurm:{job}: {why[:200]}.")
    return nodes.replace(" ", ",")
