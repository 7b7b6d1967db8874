"""A GPU of the run, or its driver, has failed.

## What it finds

Errors of the run's cards in the kernel log (Xid) since its ranks began, cards
that the driver has lost, uncorrected memory errors, and a driver that does not
answer.

## Why it hangs

The kernels of the failed card end or never finish. The collective of the other
cards then waits for data that never comes. The rank often learns nothing of it:
a kernel that never finishes raises no exception.

## Example

```sh
dmesg | grep NVRM
# NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.   # <-
```

## Use instead

```sh
nvidia-smi --gpu-reset -i 0000:c1:00.0   # or drain the host
torchrun --nnodes 2 train.py             # without it
```

For Xid 13 and 31, look for the faulty kernel: `compute-sanitizer python
train.py`, or `CUDA_LAUNCH_BLOCKING=1` for the line that starts it.

## How hangdoc knows

It reads the messages that the driver has written to the kernel log, which needs
root on most hosts and is not possible in a container. A message names the PCI
address of the card and often the pid of the process. A child process asks NVML
about the cards (`pip install 'hangdoc[gpu]'`); if it gets no answer within 5
seconds, the driver does not answer. The finding is an error only if ranks wait
or have died.

Xid 43, 45 and 63 follow from other errors. They are evidence, but alone they
are no finding.

## When it can be wrong

The driver names no processes in most containers. hangdoc then does not know
which ranks use the card, and the finding is a warning. Memory errors are counted
since the driver was loaded, so they may be older than the run. Xid 13 and 31 are
mostly errors of the program, but a failing card can cause them, too.

The lines of Xid 31 and 43 that it was tested with are those of a real card. The
other ones come from NVIDIA's documentation.

## References

- Xid errors: https://docs.nvidia.com/deploy/xid-errors/
- NVML: https://docs.nvidia.com/deploy/nvml-api/
- GPU debug guidelines:
  https://docs.nvidia.com/deploy/gpu-debug-guidelines/
"""

from collections.abc import Iterator

from msgspec.structs import replace

from hangdoc.reasoning.causes.hardware import CardFault, Fault, find_faults
from hangdoc.reasoning.evidence.kernel import Weight
from hangdoc.reasoning.model.rank import numbers_of
from hangdoc.reasoning.rules.draft import Blockage, Draft, Run, about, reported_causes
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import Command, command

_REMEDIES: dict[Weight, str] = {
    "ends": "Restart the run without this host or card. Then reset the card, or take the host out of service.",
    "program": "Read the error that the rank has printed, and run it with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1.",
    "link": "Restart the run on other hosts, and have the NVLinks of this one checked.",
    "hint": "Reset the card when the run has ended, and watch it: it may need to be replaced.",
}
_DRIVER = "Restart the host. Do not run nvidia-smi there: it would wait for the driver, too."
_MOST_CARDS = 4


@about(CardFault)
def write(run: Run, blockage: Blockage, cause: CardFault) -> Draft:
    """What keeps a blockage from ending."""
    draft, stacks = _draft(run, cause.fault), words.stacks(run, (*blockage.awaited, *blockage.waiting))
    return replace(draft, severity=None, victims=None, evidence=(*draft.evidence, *stacks))


def check(run: Run) -> Iterator[Draft]:
    """One finding for each kind of fault on a host that is not the cause of a blockage."""
    causes = [cause.fault for cause in reported_causes(run, CardFault)]
    for fault in find_faults(run):
        if not any((fault.host.name, fault.cards) == (cause.host.name, cause.cards) for cause in causes):
            yield _draft(run, fault)


def _draft(run: Run, fault: Fault) -> Draft:
    return Draft(
        severity=fault.severity,
        confidence=fault.confidence,
        culprits=fault.owners.ranks,
        victims=set(numbers_of(run.waiting)) if fault.severity == "error" else (),
        summary=_summary(fault),
        evidence=fault.evidence,
        remedy=_REMEDIES[fault.weight] if fault.cards else _DRIVER,
        commands=_commands(fault, fault.host.name if len(run.hosts) > 1 else ""),
    )


def _summary(fault: Fault) -> str:
    host, ranks = fault.host.name, fault.owners.ranks
    if not fault.cards:
        return f"{fault.meaning} on {host}, where {words.do(ranks, 'runs', 'run')}"
    several = len(fault.cards) > 1
    shown = ", ".join(fault.cards[:_MOST_CARDS]) + (", ..." if len(fault.cards) > _MOST_CARDS else "")
    card = f"{len(fault.cards)} cards ({shown})" if several else f"card {shown.removeprefix('card ')}"
    if not ranks:
        return f"{card} of {host}, which the run may use: {fault.meaning}"
    owner = words.ranks(ranks) if fault.owners.sure else f"{words.ranks(ranks)}, by exclusion"
    return f"{card} of {host} ({owner}): {fault.meaning}"


def _commands(fault: Fault, host: str) -> tuple[Command, ...]:
    log = command("dmesg", "--ctime", host=host)
    if not fault.cards:
        return (log,)
    card = fault.cards[0]
    query = (command("nvidia-smi", "-q", "-i", card, host=host),) if ":" in card else ()
    links = (command("nvidia-smi", "nvlink", "--errorcounters", host=host),) if fault.weight == "link" else ()
    return (log, *query, *links)
