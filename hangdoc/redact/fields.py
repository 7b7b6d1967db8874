"""What each text field of a snapshot is, and so which filter it passes."""

from typing import Literal

from hangdoc.snapshot import (
    Alike,
    Arrival,
    AwaitedFile,
    AwaitedKey,
    BeaconReading,
    CallForm,
    Connection,
    ControlGroup,
    Counter,
    DataSource,
    Environment,
    Exit,
    FlightRecorder,
    Frame,
    Group,
    Holder,
    Host,
    Interface,
    Interpreter,
    KernelState,
    KernelThread,
    Launch,
    Listener,
    Loader,
    Loop,
    Machine,
    OpenCalls,
    Process,
    PythonThread,
    RankIdentity,
    Recorded,
    RecordedGroup,
    Runtime,
    Snapshot,
    TrainerCount,
    Transfer,
    Unavailable,
    Unreached,
)

Kind = Literal[
    "name", "path", "function", "code", "argv", "environment", "thread", "program", "key", "sentence", "words"
]
"""What a text is, and so which filter it passes. `name`: it distinguishes ranks and hosts, or the kernel or torch made
it; only what looks like a secret is removed. `key`: of a store. `sentence`: made by hangdoc, with quotations. `words`: anything
else."""

FIELDS: dict[type, dict[str, Kind]] = {
    Exit: {"statement": "code", "conditions": "code"},
    Transfer: {"call": "name", "conditions": "code"},
    Loop: {"header": "code", "counters": "name", "begin": "code", "bound": "code", "advances": "name"},
    Frame: {
        "function": "function", "file": "path", "source": "code", "context": "code", "conditions": "code", "contexts": "code",
        "caught": "code",
    },
    PythonThread: {"name": "thread"},
    Holder: {"name": "program", "state": "name"},
    AwaitedFile: {"kind": "name", "name": "path", "mount": "path"},
    Arrival: {"folder": "path"},
    KernelThread: {"name": "thread", "state": "name", "wchan": "name", "syscall": "name"},
    RankIdentity: dict.fromkeys(("source", "master_address", "run_id", "run", "run_digest"), "name"),
    Launch: dict.fromkeys(("tool", "nnodes", "nproc_per_node", "endpoint", "run_id"), "name"),
    Group: {"name": "name", "backend": "name"},
    Environment: {"variables": "environment"},
    Interpreter: {"environment": "environment", "rpc_name": "name"},
    OpenCalls: {"worker": "name"},
    Counter: {"name": "name", "function": "function", "file": "path"},
    BeaconReading: {"phase": "words", "shards_digest": "name"},
    DataSource: {"path": "path", "origin": "name", "suffixes": "name", "digest": "name"},
    Loader: {
        "kind": "name", "name": "name", "function": "function", "file": "path", "dataset": "name", "sampler": "name",
    },
    TrainerCount: {"framework": "name", "name": "name"},
    Runtime: {"python": "name", "executable": "path", "torch": "name"},
    CallForm: dict.fromkeys(("op", "inputs", "outputs"), "name"),
    Recorded: dict.fromkeys(("op", "inputs", "outputs"), "name"),
    RecordedGroup: {"name": "name"},
    FlightRecorder: {"source": "path"},
    AwaitedKey: {"name": "key", "alike": "key"},
    KernelState: {"state": "name", "tracer": "program"},
    Process: {
        "role": "name", "name": "program", "argv": "argv", "state": "name", "cwd": "path", "tracer": "program",
        "control_group": "name", "namespaces": "name",
    },
    Alike: {"state": "name", "argv": "argv", "variables": "environment"},
    Connection: dict.fromkeys(("namespace", "state", "local_address", "remote_address"), "name"),
    Listener: {"namespace": "name", "name": "program", "argv": "argv"},
    ControlGroup: {"path": "name"},
    Interface: dict.fromkeys(("name", "addresses", "networks"), "name"),
    Machine: dict.fromkeys(("cpu_model", "cpu_flags", "kernel", "net_namespace", "hostname_addresses"), "name"),
    Host: {
        "name": "name", "taken_at": "name", "problems": "sentence", "machine_id": "name", "asked_as": "name", "dumps": "path",
    },
    Unavailable: {"reason": "sentence"},
    Unreached: {"host": "name", "why": "sentence"},
    Snapshot: {"hangdoc": "name", "schema": "name"},
}  # fmt: skip
"""The kind of each field with text. Of a field that is not here, as a new one, only words of the field are kept (`words`)."""
