"""A rank exited, was killed (by whom: OOM killer, signal), or is a zombie while others wait.

## What it finds

A rank whose process is gone or a zombie, in a run whose other ranks are still there; or a run of which only zombies and the
process that started them are left.

## Why it hangs

Gloo tells its peers within a second when a rank dies, so most deaths end the run. It hangs where a survivor swallows that
error, waits on the store for a key the dead rank would have set, is in a group without it, or ignores its launcher's
SIGTERM.

## Evidence

The zombie's exit code or signal; the rank's absence from a host where the launcher had put it; the memory control
group's count of out-of-memory kills; what the survivors wait in.

## What to do

Read the dead rank's own log for its last words, and `dmesg` for an OOM kill. Restart the run; let survivors fail on a
peer's death instead of waiting.

## When it would be wrong

When the rank ended regularly and the others are just leaving: nobody waits then, and nothing is reported.

## References

- proc_pid_stat(5), waitpid(2); Control Group v2, memory.events
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import Ended
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.ranks.holds import Dead
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD301"
NAME = "rank-dead"
ABOUT = (Dead, Ended)

_SIGKILL = 9


def say(run: Run, blockage: Blockage) -> Finding:
    """Dead ranks that others wait for, or a run of which none is left."""
    if isinstance(blockage.kind, Ended):
        return _over(run, blockage, blockage.kind)
    assert isinstance(blockage.kind, Dead)  # noqa: S101  (see ABOUT)
    blamed, victims = blockage.culprits, blockage.victims
    dead = [run.ranks[number] for number in blamed]
    survivor = blockage.waiting[0].first
    kills = _out_of_memory(run, dead)
    how = dead[0].why + (", by the OOM killer as it seems" if kills else "")
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.96 if blockage.kind.traced else 0.9,
        summary=f"{words.ranks(blamed)} {words.verb(blamed, 'is', 'are')} dead ({how}), and "
        + (
            f"{words.ranks(victims)} still {words.verb(victims, 'waits', 'wait')} in {words.operation(survivor)}"
            if survivor.wait is not None
            else f"no other rank does anything: {words.ranks(victims)} {words.doing(survivor)} {words.place(survivor)}"
        ),
        evidence=[
            *(Evidence(rank=rank.rank, probe="processes", text=_death(run, rank)) for rank in dead[:8]),
            *kills,
            Evidence(rank=survivor.rank, probe="stacks", text=f"why it did not notice: {_unnoticed(survivor)}"),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy="Read the dead rank's last output and the kernel log, then restart the run: it can't go on.",
        commands=("dmesg -T | grep -i -E 'oom|killed process' | tail",),
    )


def _over(run: Run, blockage: Blockage, kind: Ended) -> Finding:
    """torchrun's agent looks every moment whether its ranks live; another parent may never."""
    blamed = blockage.culprits or kind.ranks
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9,
        summary=f"no rank is alive ({run.ranks[blamed[0]].why}), and the launcher (pid {kind.launcher.pid}) is still there",
        evidence=[
            Evidence(
                rank=number, probe="processes", text=f"pid {run.ranks[number].pid} is a zombie: {run.ranks[number].why}"
            )
            for number in kind.ranks[:8]
            if run.ranks[number].process is not None
        ],
        remedy="Read the ranks' last output, then end the launcher: the run is over.",
        commands=(f"ps -o pid,ppid,stat,etime,args -p {kind.launcher.pid}",),
    )


def _out_of_memory(run: Run, dead: list[Rank]) -> list[Evidence]:
    """Kills for want of memory in the run's control groups, where a rank may be one of them: SIGKILL, or no trace left."""
    if not any(rank.process is None or (rank.process.exit_code or 0) & 0x7F == _SIGKILL for rank in dead):
        return []
    return [
        Evidence(rank=None, probe="control groups", text=f"{group.oom_kills} out-of-memory kill(s) in {group.path}")
        for host in run.hosts
        for group in host.control_groups
        if group.oom_kills
    ]


def _unnoticed(survivor: Rank) -> str:
    """Why a survivor's wait has no idea of a death."""
    wait = survivor.wait
    if wait is not None and wait.kind == "store":
        return "a key in the store is waited for without regard to who was to write it"
    if wait is not None and wait.operation.group is not None:
        return f"it waits in group {wait.operation.group}, for a rank that waits for the dead one in its turn"
    if any(c.state == "ESTABLISHED" for c in survivor.connections):
        return "some of its connections to other ranks are still open, so nothing tells it"
    return "its connections have ended, and the error was swallowed or is not asked for"


def _death(run: Run, rank: Rank) -> str:
    if rank.process is None:
        others = [r.rank for r in run.ranks.values() if r.process is not None and r.label != "dead"]
        return f"no process with this rank on {rank.host}, where {words.ranks(others)} had met it before"
    return f"pid {rank.process.pid} is a zombie of pid {rank.process.ppid}: {rank.why}"
