"""Makes the report of a node. It reads files, resolves names and lists directories, without importing torch. Every step has a
time limit."""

import contextlib
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from importlib import metadata
from os.path import basename
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from hangdoc import redact, settings
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Target
from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.find.discover import discover
from hangdoc.observe.kernel.data_directories import list_shards, named_folders, names_data, says_path
from hangdoc.observe.kernel.machine import machine, resolve
from hangdoc.observe.kernel.sockets import describe_listener, find_first_holder
from hangdoc.observe.look.abilities import check_all
from hangdoc.observe.look.observe import machine_id
from hangdoc.parse import natural
from hangdoc.portable import find_launcher_python, running_from
from hangdoc.preflight.absence import MISSING, find_absence
from hangdoc.preflight.other_runs import describe_command, describe_others
from hangdoc.preflight.plan import Agent, Attach, Card, MissingPath, NodeReport, Plan
from hangdoc.procfs import ProcFS
from hangdoc.regex import regex
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import DataSource, Listener, Machine, Unavailable
from hangdoc.torch_facts import environment_names
from hangdoc.version import __version__

_LIST_SECONDS = 3.0
_IS_DATA = regex(r"(?i)(^|[-_.])(data|datasets?|corpus|shards?|dirs?|directory|paths?|files?|folder|root)$")
"""Settings whose value names data itself, and not a part or a form of it (`--train_split`, `--data_config`)."""
_VALUE = regex(r"(?i)true|false|none|null|auto|[0-9.]+[a-z]?")
_RESUMES = regex(
    r"(?i)^(.*[-_.])?((resume|load|restore|restart)([-_.]?(from|path|file|ckpt|checkpoint))*|ckpt[-_.]?(path|file))$"
)
_BEGINS_PATH = ("/", "./", "../", "~/")
_IS_NO_PATH, _MAX_PATH = regex(r"://|[\0$*`]"), 1000
_WEIGHTS = regex(r"(?i)\.(ckpt|pt|pth|bin|safetensors)$")


def gather(plan: Plan) -> NodeReport:
    """The report of this node. Never raises: the report has reasons for what can't be read."""
    proc, problems, missing = ProcFS(), list[str](), list[MissingPath]()
    host = machine(proc)
    master = (plan.master or "").rpartition(":")[0]
    own = socket.gethostname()
    environment = {**os.environ, **plan.environment}
    variables = redact.environment(environment)
    resolved = {name: resolve(name) for name in dict.fromkeys((own, master)) if name}
    is_master = _has_address(host, resolved.get(master))
    holder = _find_port_holder(plan) if is_master else None
    running = discover(proc, Deadline(5)).targets
    others = list(describe_others(proc, running))
    left_over = [run for run in others if run.user is None and run.left_over]
    launched = [run for run in others if run.user is None and not run.left_over]
    report = NodeReport(
        name=own,
        machine=host,
        cards=tuple(_list_cards()),
        versions={"hangdoc": __version__, **_read_versions(plan.python)},
        other_python=sys.executable if plan.python is None else None,
        portable=running_from() is not None,
        launcher_python=find_launcher_python(plan.launcher or "torchrun") if running_from() is not None else None,
        resolved=resolved,
        is_master=is_master,
        holder=replace(holder, argv=()) if holder is not None else None,
        holder_command=_describe_holder(running, holder) if holder is not None else "",
        holder_role=_find_role(running, holder.pid) if holder is not None else None,
        port_error=_find_port_error(plan) if is_master and holder is None else None,
        environment={name: value for name, value in variables.items() if _matters(name)},
        arguments=redact.argv(plan.arguments),
        data=tuple(_list_data(plan, environment, problems, missing)),
        missing_data=tuple(missing),
        missing_checkpoints=tuple(_find_missing_checkpoints(plan)),
        left_over=tuple(run.text for run in left_over),
        left_over_at_work=tuple(run.text for run in left_over if not run.at_rest),
        running=tuple(run.text for run in launched if not run.at_rest),
        resting=tuple(run for run in launched if run.at_rest),
        foreign=tuple(run for run in others if run.user is not None),
        agents=tuple(_find_agents(proc, plan, running)),
        machine_id=machine_id(proc),
        attach=tuple(Attach(**ability._asdict()) for ability in check_all()),
        lacks_checkpoints=plan.checkpoints is not None and find_absence(plan.checkpoints) == MISSING,
        usable_cores=len(os.sched_getaffinity(0)),
        free_bytes=_measure_free_space(plan.checkpoints or "."),
        address=published(host, resolved.get(own), environment),
        problems=tuple(problems),
    )
    return redact.node_report(report, environment, plan.arguments)


def published(
    host: Machine | Unavailable, own: tuple[str, ...] | Unavailable | None, environment: Mapping[str, str]
) -> str | None:
    """The address that Gloo would publish to its peers (gloo/transport/tcp/device.cc): that of the interface in
    GLOO_SOCKET_IFNAME, else of the host name."""
    named = environment.get(environment_names.GLOO_INTERFACE)
    if named and isinstance(host, Machine):
        wanted = named.split(",")[0]
        interface = next((interface for interface in host.interfaces if interface.name == wanted), None)
        return next((a for a in interface.addresses if ":" not in a), None) if interface is not None else None
    return own[0] if isinstance(own, tuple) and own else None


def _matters(name: str) -> bool:
    return (
        settings.variable(name) is not None
        or name.endswith(environment_names.INTERFACE_ENDING)
        or name in ("MASTER_ADDR", "MASTER_PORT")
    )


def _read_versions(python: str | None) -> dict[str, str | None]:
    """The versions of Python and torch in the environment of an interpreter, from its files; by default in hangdoc's own."""
    prefix = Path(python or sys.executable).parent.parent
    is_own = python in (None, sys.executable)
    packages = [] if is_own else sorted(map(str, prefix.glob("lib*/python3*/site-packages")))
    if not packages:
        torch = next(iter(metadata.distributions(name="torch")), None)
        return {"Python": platform.python_version(), "torch": torch.version if torch is not None else None}
    torch = next(iter(metadata.distributions(name="torch", path=packages)), None)
    version = Path(packages[0]).parent.name.removeprefix("python")
    with contextlib.suppress(OSError):
        text = (prefix / "pyvenv.cfg").read_text(errors="replace")
        version = next(
            (line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("version ")), version
        )
    return {"Python": version, "torch": torch.version if torch is not None else None}


def _list_cards() -> Iterator[Card]:
    """Network cards, from ioctl and /proc/net: these show our own network namespace. /sys shows that of the process that mounted
    it."""
    import psutil

    try:
        lines = Path("/proc/self/net/wireless").read_text().splitlines()[2:]
    except OSError:
        lines = []
    wireless = {line.partition(":")[0].strip() for line in lines}  # only older drivers; others are recognized by name
    for name, card in sorted(psutil.net_if_stats().items()):
        yield Card(
            name=name,
            wireless=name in wireless or name.startswith("wl"),
            speed_mbit=card.speed or None,
            mtu=card.mtu or None,
        )


def _has_address(host: Machine | Unavailable, addresses: tuple[str, ...] | Unavailable | None) -> bool:
    mine = {a for interface in host.interfaces for a in interface.addresses} if isinstance(host, Machine) else set()
    # On Debian, a host's own name is 127.0.1.1, which is not an address of any interface.
    return isinstance(addresses, tuple) and any(a in mine or is_loopback(a) for a in addresses)


def _find_port_holder(plan: Plan) -> Listener | None:
    """The process that listens on the master port."""
    port = int((plan.master or "").rpartition(":")[2] or 0)
    import psutil

    for c in psutil.net_connections(kind="tcp"):
        if c.status == psutil.CONN_LISTEN and c.laddr.port == port:
            # psutil names any of the processes that hold a socket.
            pid = find_first_holder(ProcFS(), c.pid, c.fd) if c.pid is not None else None
            return describe_listener(ProcFS(), port, "", pid)
    return None


def _describe_holder(running: Mapping[int, Target], holder: Listener) -> str:
    """The command of the process that listens on the master port, without its secrets."""
    target = running.get(holder.pid or 0)
    of_run = target is not None and target.role in ("rank", "launcher")
    return describe_command(redact.argv(holder.argv) if of_run else redact.command(holder.argv))


def _find_role(running: Mapping[int, Target], pid: int | None) -> Literal["rank", "launcher"] | None:
    """What a process is of a run whose launcher is alive; None if it is neither its rank nor its launcher."""
    of_runs = {number: each for number, each in running.items() if each.role == "rank" and not each.launcher_gone}
    if pid in of_runs:
        return "rank"
    return "launcher" if pid is not None and any(each.owner == pid for each in of_runs.values()) else None


def _find_port_error(plan: Plan) -> str | None:
    """Why the run's store could not listen on the master port; None if it could. Binds and listens on all addresses, like
    TCPStore."""
    port = int((plan.master or "").rpartition(":")[2] or 0)
    both = socket.has_dualstack_ipv6()
    try:
        socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both
        ).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return None


def _list_data(
    plan: Plan, environment: Mapping[str, str], problems: list[str], missing: list[MissingPath]
) -> Iterator[DataSource]:
    """Data directories in the plan, in environment variables and in the script's arguments. What can't be listed becomes a
    problem, and what is not there is added to `missing`."""
    own = [os.path.abspath(os.path.expanduser(folder)) for folder in plan.data]
    origins = dict.fromkeys(own, "--data")  # in the order in which all nodes name them
    for path, origin in named_folders(environment, ("", *plan.arguments), os.getcwd()).items():
        origins.setdefault(path, origin)
    values = settings.options(("", *plan.arguments)).values()
    surely = {*own, *(os.path.abspath(os.path.expanduser(value)) for value in values if value.startswith(_BEGINS_PATH))}
    pool, root = ThreadPoolExecutor(4), own_root()
    waiting = [
        (path, origin, pool.submit(list_shards, root, path, any_suffix=names_data(origin)))
        for path, origin in list(origins.items())[:8]
    ]
    for path, origin, job in waiting:
        try:
            listed = job.result(_LIST_SECONDS)
        except FutureTimeout:
            problems.append(f"data directory {path} could not be listed within {_LIST_SECONDS:g} s (a dead mount?)")
            continue
        setting = settings.variable(origin)
        meant = path in own or names_data(origin) or (setting is not None and setting.kind == "data")
        if listed is not None and (listed[0] or meant):
            files, size, suffixes, digest = listed
            yield DataSource(path=path, origin=origin, files=files, bytes=size, suffixes=suffixes, digest=digest)
        elif listed is None and meant:
            is_path = path in surely or _is_surely_path(path, origin)
            missing += _find_missing(path, origin, must_exist=path in own, is_path=is_path)
    pool.shutdown(wait=False, cancel_futures=True)


def _find_missing(path: str, origin: str, *, must_exist: bool, is_path: bool) -> Iterator[MissingPath]:
    """The data that a setting names, if it is not there. What surely `is_path` is none of a word such as `true`."""
    absence = find_absence(path)
    if absence is not None and (is_path or (_IS_DATA.search(origin) and not _VALUE.fullmatch(basename(path)))):
        refused = "" if absence == MISSING else absence
        yield MissingPath(path=path, origin=origin, must_exist=must_exist, may_be_name=not is_path, refused=refused)


def _find_missing_checkpoints(plan: Plan) -> Iterator[MissingPath]:
    """Checkpoints that an option of the script names by a path, as `--ckpt_path runs/last.ckpt`, and that are not there. A name
    without a folder may be one in a hub, or a word such as `latest`. One on a mount that does not answer is left out."""
    pool = ThreadPoolExecutor(1)
    for name, value in settings.options(("", *plan.arguments)).items():
        is_path = value.startswith(_BEGINS_PATH) or (os.sep in value and _WEIGHTS.search(value))
        if not _RESUMES.search(name) or not is_path or _IS_NO_PATH.search(value) or len(value) > _MAX_PATH:
            continue
        path = os.path.abspath(os.path.expanduser(value))
        try:
            absence = pool.submit(find_absence, path).result(_LIST_SECONDS)
            if absence is not None:
                written = settings.names_as_written(("", *plan.arguments))[name]
                yield MissingPath(path=path, origin=written, refused="" if absence == MISSING else absence)
        except FutureTimeout:
            break
    pool.shutdown(wait=False, cancel_futures=True)


def _is_surely_path(path: str, origin: str) -> bool:
    """Whether a setting names a path: the path leaves the working directory, or a folder that exists has it, or the name of the
    setting says so. `--dataset_name wikitext` and `--dataset_path allenai/c4` may be names in a hub."""
    within = os.path.relpath(path)
    if within.startswith("..") or (os.sep in within and os.path.isdir(os.path.dirname(path))):
        return True
    # `--max_train_files 10k`, `--shuffle_train_files true`
    may_be_value = origin.lower().endswith("files") and _VALUE.fullmatch(within) is not None
    may_be_in_hub = origin.lower().endswith("path") and within.count(os.sep) == 1
    return says_path(origin) and not may_be_value and not may_be_in_hub


def _find_agents(proc: ProcFS, plan: Plan, running: Mapping[int, Target]) -> Iterator[Agent]:
    """The launchers of this user that wait here as nodes of the planned launch. One that has ranks has met its other nodes.
    One whose processes can't be read may have."""
    at_work = {target.owner for target in running.values() if target.role == "rank"}
    for pid, target in running.items():
        if (launch := target.launch) is None or plan.master is None or launch.endpoint != plan.master:
            continue
        if pid in at_work or target.unreadable_below:
            continue
        if natural((launch.nnodes or "").rpartition(":")[2]) == plan.nodes and proc.user(pid) == os.geteuid():
            yield Agent(pid=pid, node_rank=launch.node_rank)


def _measure_free_space(folder: str) -> int | None:
    path = Path(folder).expanduser().absolute()
    while not os.path.exists(path) and path != path.parent:  # Path.exists raises what it may not look at
        path = path.parent
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
