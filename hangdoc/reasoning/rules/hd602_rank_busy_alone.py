"""The others wait for a rank that is busy with work of its own.

## What it finds

Ranks wait in an operation for one that is working: its counters change, or it
evaluates, samples, writes a checkpoint, compiles or loads data, and its stack
or its CPU time changes. Also ranks that are idle: they wait for the next request,
and the others, if any, for the work that it brings.

## Why it hangs

It does not hang: the others continue when the rank arrives. From outside it
looks like a hang, and it costs the time of all other ranks. The timeout of the
process group (30 minutes; NCCL: 10) ends the run if the work takes longer.

## Example

```python
for step, batch in enumerate(loader):
    train_step(batch)
    if step % 1000 == 0 and rank == 0:
        evaluate(model.module, validation)  # <- the others wait
```

## Use instead

```python
for step, batch in enumerate(loader):
    train_step(batch)
    if step % 1000 == 0:
        part = validation[rank::world_size]
        total = torch.tensor(evaluate(model.module, part))
        dist.all_reduce(total)  # every rank evaluates its part
```

Write checkpoints in the background with
`torch.distributed.checkpoint.async_save`. Raise the timeout of the group if the
work takes long.

## How hangdoc knows

It reads what the busy rank is doing, which of its counters and stacks changed
during the observation, and the stacks of the waiting ranks. A rank is idle if it
listens for requests itself, if it polls or receives and the process that started
it listens (or is a known engine), or if it waits for a task of Ray. The others wait
for it only in calls that hand out work. Then hangdoc shows which tasks other
workers of Ray execute meanwhile. A rank is also idle if the processes at the other
end of its pipe or its shared memory wait for events or connections. It is not called
idle if clients have sent data to its port and got no answer since, for five seconds
or longer. Then threads of it that wait for a lock, an entry of a queue or a result
are shown too. If the thread that made its calls left a loop without an end, the
finding reports that. The score is lower if nothing shows who makes what it waits for. For
example, all ranks poll and none waits for another one, or all wait for a key that a
client of the store may set. Or the others were given more time than any default of
torch.

## When it can be wrong

A rank in an endless search or retry loop looks the same as long as its counters
change. Run hangdoc again some minutes later and compare the numbers. A request
that was lost on its way looks like none. Data without an answer are no request
where none is due: an open websocket, a health check. A client that waits for a
reply at a datagram socket with a path looks like a server.

## References

- torch.distributed.checkpoint:
  https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
- init_process_group, timeout:
  https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import duration
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.ledger.compare import next_timeout, unfinished_calls
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.holds import Asleep, GetsRequests, Serves, Unanswered, Works
from hangdoc.reasoning.model.kinds import Idle
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import locks
from hangdoc.reasoning.ranks.movement import CHILDREN_BUSY, describe_children
from hangdoc.reasoning.ranks.waiter import name_awaited
from hangdoc.reasoning.rules.draft import Draft, about
from hangdoc.reasoning.rules.sentences import describe_poll
from hangdoc.reasoning.text import children, next_steps, words
from hangdoc.snapshot import RayTask

_SHOWN_THREADS = 3
_IF_TASKS_TAKE_LONG = "The driver may wait for the tasks of other workers: look at those, if they take too long."
_IF_TOO_LONG = "Nothing shows how far it has come: if this takes longer than it should, look at its line again. "
_IF_UNANSWERED = (
    "If these are requests, look at the log and the threads of {ranks}: {reason} If they need no answer (open websockets, health "
    "checks), nothing is wrong."
)
_AT_LOCK = (
    "a thread that handles one may wait for a lock that is never released. `with` releases it also after an exception."
)
_THREAD_ENDED = "the thread that should answer them may have ended by an exception, or wait for something."
_CALLER_ENDED = (
    "an exception may have ended that thread. Then no request is answered, unless the next one starts it again."
)
_IF_ON_ITS_WAY = "If a request is on its way, look at the process that should send it."
_IF_FOR_ANYTHING_ELSE = "If it polls for anything else, the loop at its line shows what must come."


@about(Works)
def _works(run: Run, blockage: Blockage, kind: Works) -> Draft:
    first, blamed = blockage.awaited[0].first, blockage.culprits
    what = describe_children(run.helpers(first)) if kind.what == CHILDREN_BUSY else kind.what
    counted = words.counters(first)
    reason = kind.what
    if first.at_rest is not None and first.work is None and counted:  # its own thread does not show what is at work
        reason = counted[0].text
    beside = first.at_rest is not None and first.at_rest.state == "waiting-lock"  # another thread does it
    repeated = first.why.removeprefix("uses ") in kind.what
    return Draft(
        confidence=0.85 if kind.certain else 0.75,
        summary=f"{words.awaited(run, blockage)}; rank {first.rank} is active: {reason}",
        evidence=[
            *words.class_evidence(blockage.awaited),
            *children.places(run, first),
            *counted,
            Evidence(
                first.rank,
                "cpu",
                what if repeated else f"{first.why}; {what}",
            ),
            *words.stacks(run, blockage.waiting),
        ],
        remedy=f"Wait until {words.have(blamed)} finished. {'' if kind.certain else _IF_TOO_LONG}To save the time of the other "
        f"ranks, share this work among all ranks{'' if beside else ' or do it in the background'}.",
        commands=children.look(run, first) or None,
    )


@about(Idle)
def _idle(run: Run, blockage: Blockage, kind: Idle) -> Draft:
    sure = kind.sure
    actor = next((rank for rank in run.living if rank.process is not None and rank.process.ray_tasks), None)
    tasks = actor.process.ray_tasks if actor is not None and actor.process is not None else ()
    meanwhile = [Evidence(actor.rank, "processes", _describe_task(task)) for task in tasks if actor is not None]
    holds = [run.ranks[number].hold for number in blockage.culprits]
    meanwhile += describe_poll(blockage.awaited[0].first, holds[0] if holds else None, own_store=kind.own_store)
    meanwhile += children.ended(run, blockage.awaited[0].first)
    unanswered = Unanswered.of_all(hold.unanswered for hold in holds if isinstance(hold, Serves))
    if unanswered is not None:
        meanwhile.append(Evidence(None, "sockets", str(unanswered)))
        meanwhile += _describe_waiting_threads(blockage.awaited[0].first)
    lock = next(
        (hold.lock for hold in holds if isinstance(hold, GetsRequests | Serves) and hold.lock is not None), None
    )
    if lock is not None:
        meanwhile.append(Evidence(None, "stack", f"a thread of pid {lock.pid} waits for a lock: {lock.what}"))
    polls = not sure and bool(holds) and isinstance(holds[0], Asleep)
    unless = "" if sure else ", if what is missing is a request"
    remedy = f"Nothing{unless}{', or if the next attempt may succeed' if polls else ''}. {_describe_timeout(run)}"
    remedy += _IF_TASKS_TAKE_LONG if tasks else _IF_FOR_ANYTHING_ELSE if polls else _IF_ON_ITS_WAY
    if lock is not None and lock.sure:
        remedy = f"Look at the threads of pid {lock.pid}: some of them wait for a lock that none of them releases."
    commands: tuple[next_steps.Command, ...] | None = () if sure else None
    if unanswered is not None:
        reason = _AT_LOCK if lock is not None else _THREAD_ENDED
        remedy = _IF_UNANSWERED.format(ranks=words.ranks(blockage.culprits), reason=reason)
        commands = None
    ended = next((hold.ended for hold in holds if isinstance(hold, Serves) and hold.ended is not None), None)
    if ended is not None:
        remedy = f"Look at the log of {words.ranks(blockage.culprits)}: {_CALLER_ENDED}"
        commands = None
    if (pid := tasks[0].pid if tasks else lock.pid if lock is not None else None) is not None:
        commands = next_steps.stack_of(pid)
    waits = f"{words.are(blockage.culprits)} {kind}"
    but = [f"the thread that made its calls (at {ended}) has ended"] if ended is not None else []
    but += [str(unanswered)] if unanswered is not None else []
    if but:
        waits += f", but {', and '.join(but)}"
    else:
        waits = f"{'idle' if sure else 'idle, or waiting for what never comes'}: {waits}"
    return Draft(
        confidence=0.75 if sure else 0.6,
        summary=words.and_victims(waits, blockage),
        evidence=words.sides(run, blockage, meanwhile),
        remedy=remedy,
        commands=commands,
    )


def _describe_waiting_threads(server: Rank) -> list[Evidence]:
    """What the other threads of a server wait for in the user's code, by the function of Python's library that they are in."""
    others = observed.python_threads(server.process) if server.process is not None else ()
    waits = [
        f"thread {locks.name_at(thread)} is {awaited}"
        for thread in others
        if thread is not server.thread and user_frames(thread) and (awaited := name_awaited(thread)) is not None
    ]
    return [Evidence(server.rank, "stack", text) for text in waits[:_SHOWN_THREADS]]


def _describe_task(task: RayTask) -> str:
    """`meanwhile, pid 7 (ray::Rollout.play) is in a task, and has not run for 47 s`."""
    idle = task.idle_seconds
    rests = f", and has not run for {duration(idle)}" if idle is not None and idle >= 1.0 else ""
    return f"meanwhile, pid {task.pid} ({task.title}) is in a task{rests}"


def _describe_timeout(run: Run) -> str:
    """What to do if torch ends an idle server."""
    if next_timeout(unfinished_calls(run)) is None:
        return ""
    return "Torch ends the run if nothing comes before its timeout: raise that of the process group. "
