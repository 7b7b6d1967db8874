"""Another process listens on the master port.

## What it finds

Ranks or launchers that wait in their rendezvous, while the process that listens
on their master port belongs to another run or program.

## Why it hangs

The ranks connect to the wrong process. It may never reply. Or it is the store
of another run, often an orphan of an earlier one, which accepts the ranks and
lets them wait for peers that never come. The run's own first rank could not
bind the port and ended with EADDRINUSE, often unnoticed on another node.

## Example

```sh
torchrun --nnodes 2 --node-rank 1 --master-port 29500 train.py   # <- taken
```

## Use instead

```sh
ss -ltnp 'sport = :29500'   # on node0: which process is it?
torchrun --nnodes 2 --node-rank 1 --master-port 29511 train.py
```

Terminate the other process if it is left over. On a single node,
`--rdzv-backend c10d --rdzv-endpoint localhost:0` chooses a free port.

## How hangdoc knows

It finds the process that owns the listening socket by the inode of the socket,
with its command, age and parent. The stacks show which ranks wait in the
rendezvous.

## When it can be wrong

A port forwarder or a service mesh listens in front of the real master.

## References

- torchrun, rendezvous:
  https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

from collections.abc import Collection

from hangdoc.phrases import duration, shorten
from hangdoc.reasoning.causes.launches import PortTaken
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import command


def _waits(blockage: Blockage, who: Collection[int]) -> str:
    """How long they have waited, as far as it is known."""
    if blockage.age_seconds is None:
        return words.verb(who, "waits", "wait")
    return f"{words.verb(who, 'has', 'have')} waited for {duration(blockage.age_seconds)}"


@about(PortTaken)
def describe(run: Run, blockage: Blockage, cause: PortTaken) -> Draft:
    listener, host, waiting = cause.listener, cause.host, blockage.victims
    shown = shorten(" ".join(listener.argv), 120) or listener.name
    age = f", started {duration(listener.started_seconds_ago)} ago" if listener.started_seconds_ago is not None else ""
    orphan = ", an orphan" if listener.orphan else ""
    who = words.do(waiting, "connects", "connect") if waiting else "this run's launcher connects"
    return Draft(
        confidence=0.93,
        summary=f"port {listener.port} is taken by another process, pid {listener.pid} ({listener.name}{orphan}); {who} to it "
        f"and {_waits(blockage, waiting or (0,))}"
        + ("; rank 0, which should serve the store there, is gone" if cause.culprits else ""),
        evidence=[
            Evidence(
                None,
                "sockets",
                f"pid {listener.pid} ({shown}) listens on port {listener.port} of {host}{age}{orphan}",
            ),
            *words.class_evidence(run.waiting),
        ],
        remedy="Start this run on another port. If that process is left over from an earlier run, terminate it.",
        commands=(
            command("ps", "-o", "pid,ppid,etime,args", "-p", str(listener.pid), host=host),
            command("ss", "-ltnp", f"sport = :{listener.port}"),
        ),
    )
