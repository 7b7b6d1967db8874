"""All ranks have ended, and torchrun waits for its other nodes.

## What it finds

A launcher that has no ranks left and waits in its exit barrier.

## Why it hangs

When its ranks have ended, each torchrun agent waits up to five minutes until
the other agents report the same. If another node's agent was killed, or its
ranks still run or hang, the agent waits for the whole time. The log shows
nothing.

## Example

```python
def main():
    train()
    if node_rank != 0:
        return  # <- the agents of these nodes wait for node 0
    upload_results()
```

## Use instead

```python
def main():
    train()
    if node_rank == 0:
        upload_results()
    dist.barrier()  # all nodes end together
    dist.destroy_process_group()
```

Check what the agents and ranks of the other nodes are doing. If they are gone,
terminate this agent. The training is over.

## How hangdoc knows

The stack of the agent is in `_exit_barrier`, and it has no ranks below it.

## When it can be wrong

The ranks of the other nodes may still be doing legitimate work.

## References

- torch.distributed.elastic, agent:
  https://docs.pytorch.org/docs/stable/elastic/agent.html
"""

from collections.abc import Iterator

from hangdoc.parse import natural
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.rules.draft import Draft, Evidence, Run
from hangdoc.reasoning.text import next_steps, words
from hangdoc.snapshot import Process
from hangdoc.torch_facts import file_names


def check(run: Run) -> Iterator[Draft]:
    """One finding for all agents in the exit barrier of a run that has no ranks left."""
    waiting = [process for _, process in run.launchers if _leaves(process)]
    if not waiting or run.living:
        return
    nodes = next((natural(p.launch.nnodes) for p in waiting if p.launch is not None and p.launch.nnodes), None)
    unseen = "" if nodes is not None and len(run.launchers) >= nodes else ", which were not observed"
    yield Draft(
        confidence=0.85,
        summary=f"all ranks have ended; {len(waiting)} of {nodes or '?'} launchers "
        f"{'is' if len(waiting) == 1 else 'are'} waiting in the exit barrier for the others{unseen}",
        evidence=[
            Evidence(None, "stacks", f"{words.launcher(process)} is in _exit_barrier and has no ranks")
            for process in waiting[:8]
        ],
        remedy="Training is over on this node. Check the other nodes; if they are gone, terminate this launcher.",
        commands=next_steps.look_again(waiting[0]),
    )


def _leaves(process: Process) -> bool:
    frames = observed.frames(process)
    return any(file_names.bare_name(f.function) == file_names.AGENT_EXIT and file_names.AGENT in f.file for f in frames)
