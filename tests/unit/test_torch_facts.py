"""What hangdoc knows of torch and of frameworks (`hangdoc.torch_facts`) is true of those that are installed, and stands nowhere
else. So a name that a new version changes makes a test fail, and not a diagnosis worse."""

import ast
import importlib.util
import inspect
import mmap
import re
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import hangdoc
from hangdoc.parse import version
from hangdoc.torch_facts import (
    call_names,
    cpp_names,
    dtypes,
    environment_names,
    file_names,
    frameworks,
    launchers,
    module_names,
    nccl,
    thread_names,
)
from hangdoc.torch_facts.file_names import Function

_TORCH = Path((importlib.util.find_spec("torch") or pytest.fail("torch is needed")).origin or "").parent
_PACKAGES = _TORCH.parent
_LARGEST = 2 << 30
"""Bytes of a library that is searched. libtorch_cpu.so has 0.4 GB, libtorch_cuda.so 1.2 GB."""


def _values(module: ModuleType) -> dict[str, object]:
    """The constants of a module of facts."""
    return {name: value for name, value in vars(module).items() if name.isupper()}


def _atoms(value: object) -> Iterator[object]:
    """All texts, regular expressions and functions in a constant."""
    if isinstance(value, Function) or not isinstance(value, tuple | frozenset | dict):
        yield value
    else:
        for part in value:
            yield from _atoms(part)
        if isinstance(value, dict):
            for part in value.values():
                yield from _atoms(part)


# --- files and functions -------------------------------------------------------------------------------------------------


@lru_cache(256)
def _functions(file: Path) -> frozenset[str]:
    """The functions that a file defines, also within others."""
    tree = ast.parse(file.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _files(part: str) -> list[Path]:
    """The installed files that a frame with this part in its path may be in: all of a directory, one, or some."""
    path = _PACKAGES / part.lstrip("/")
    if path.is_dir():
        return sorted(path.rglob("*.py"))
    return [path] if path.is_file() else sorted(path.parent.glob(f"{path.name}*"))


def _texts_of_files() -> dict[str, list[str]]:
    """Parts of paths in torch by the name of the constant that has them."""
    texts: dict[str, list[str]] = {}
    for name, value in _values(file_names).items():
        for atom in _atoms(value):
            text = atom.file if isinstance(atom, Function) else atom
            if isinstance(text, str) and "/" in text:
                texts.setdefault(name, []).append(text)
    return texts


_NOT_OF_TORCH = frozenset({"/typing_extensions.py", "/triton/compiler/", "-packages/torch/"})
_SHORTER = {"_dynamo/convert_frame": "torch/_dynamo/convert_frame.py"}


@pytest.mark.parametrize("name", sorted(_texts_of_files()))
def test_files_of_torch_exist(name: str) -> None:
    wanted = [_SHORTER.get(text, text) for text in _texts_of_files()[name] if text not in _NOT_OF_TORCH]

    assert [text for text in wanted if not _files(text)] == []


def _functions_of_torch() -> list[tuple[str, str]]:
    """(part of the path, function), in torch."""
    pairs = [
        tuple(atom) for value in _values(file_names).values() for atom in _atoms(value) if isinstance(atom, Function)
    ]
    pairs += [(file, function) for file, function, _ in file_names.ORIGINS if function is not None]
    pairs += [(file_names.AGENT, function) for function in (*file_names.AGENT_WAITS, file_names.AGENT_EXIT)]
    pairs += [(file_names.RPC, function) for function in call_names.RPC_MEETINGS]
    pairs += [("torch/distributed/", function) for function in call_names.RENDEZVOUS]
    pairs += [(file_names.C10D, call) for call in call_names.OPERATIONS - call_names.RPC_CALLS - _GONE]
    pairs += [(file_names.RPC, call) for call in call_names.RPC_CALLS - {"to_here"}]
    return sorted(set(pairs))  # type: ignore[arg-type]


_GONE = frozenset({"all_to_all_coalesced"})
"""Operations of other versions than the installed one."""


@pytest.mark.parametrize(("file", "function"), _functions_of_torch())
def test_functions_of_torch_are_defined_there(file: str, function: str) -> None:
    assert any(function in _functions(path) for path in _files(file))


@pytest.mark.parametrize(
    "name", ["init_process_group", "new_group", "_new_process_group", "new_subgroups", "split_group", "init_device_mesh",
             "_init_process_groups", "shrink_group"]
)  # fmt: skip
def test_functions_that_make_communicators_are_defined(name: str) -> None:
    assert cpp_names.CREATES_COMMUNICATOR.search(name)
    assert any(one.startswith(name) for path in _files(file_names.DISTRIBUTED) for one in _functions(path))


def test_operations_of_subsets_are_operations() -> None:
    for names in (call_names.ROOTED, call_names.SENDS, call_names.RECEIVES, {*call_names.ALIASES.values()}):
        assert set(names) <= call_names.OPERATIONS
    assert {op for _, op in file_names.DIRECT_CALLS} <= call_names.OPERATIONS
    assert {op for _, op, _ in cpp_names.OPERATIONS} <= call_names.OPERATIONS


def _of_framework(text: str) -> Path | None:
    """The installed place of a file of a framework; None if that is not installed."""
    package, _, rest = text.lstrip("/").partition("/")
    return _PACKAGES / package / rest if (_PACKAGES / package).is_dir() else None


def _functions_of_frameworks() -> list[Function]:
    atoms = [atom for value in _values(frameworks).values() for atom in _atoms(value) if isinstance(atom, Function)]
    waits = (each.function for each in (*frameworks.TASK_LOOPS, *frameworks.MEETINGS))
    return sorted({*atoms, *waits, Function(frameworks.TQDM, "__iter__")})


@pytest.mark.parametrize("function", _functions_of_frameworks(), ids=lambda function: function.file)
def test_functions_of_frameworks_are_defined_there(function: Function) -> None:
    path = _of_framework(function.file)
    if path is None:
        pytest.skip(f"{function.file.split('/')[1]} is not installed")

    assert function.name in _functions(path)


def _class_file(module: str) -> Path | None:
    path = _PACKAGES / module.replace(".", "/")
    if not (_PACKAGES / module.partition(".")[0]).is_dir():
        return None
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _classes_of_frameworks() -> list[tuple[str, str]]:
    pairs = {value for value in _values(frameworks).values() if _is_class(value)}
    return sorted(pairs | set(frameworks.PASS_ON) | set(frameworks.READS_AHEAD))  # type: ignore[arg-type]


def _is_class(value: object) -> bool:
    return type(value) is tuple and len(value) == 2 and all(isinstance(part, str) for part in value) and "." in value[0]


@pytest.mark.parametrize(("module", "name"), _classes_of_frameworks())
def test_classes_are_defined_in_their_modules(module: str, name: str) -> None:
    file = _class_file(module)
    if file is None:
        pytest.skip(f"{module.partition('.')[0]} is not installed")

    assert re.search(rf"^class {name}\b", file.read_text(), re.MULTILINE)


@lru_cache(8)
def _source_of(package: str) -> str:
    return "\n".join(path.read_text() for path in sorted((_PACKAGES / package).rglob("*.py")))


@pytest.mark.parametrize("count", frameworks.CLASS_COUNTS, ids=lambda count: f"{count.module}{count.done}")
def test_frameworks_count_their_steps_there(count: frameworks.ClassCount) -> None:
    package = count.module.rstrip(".")
    if not (_PACKAGES / package).is_dir():
        pytest.skip(f"{package} is not installed")
    source = _source_of(package)
    attributes = [*count.done.split("."), *(count.total.split(".") if count.total is not None else ())]

    assert re.search(rf"^class {count.name}\b", source, re.MULTILINE)
    assert [name for name in attributes if not re.search(rf"\b{name}\b", source)] == []


@pytest.mark.parametrize("count", frameworks.FUNCTION_COUNTS, ids=lambda count: f"{count.function.file}{count.shown}")
def test_functions_of_frameworks_count_in_these_variables(count: frameworks.FunctionCount) -> None:
    package = count.function.file.split("/")[1]
    if not (_PACKAGES / package).is_dir():
        pytest.skip(f"{package} is not installed")
    source = "".join(path.read_text() for path in _files(count.function.file))

    assert f"def {count.function.name}(" in source
    if count.batches_from is not None:
        assert f"def {count.batches_from.name}(" in "".join(p.read_text() for p in _files(count.batches_from.file))
    for path in filter(None, (count.done, count.total, count.passes)):
        name, *attributes = path.split(".")
        assert name == "self" or re.search(rf"\bfor {name}\b|\b{name} = |\b{name}, |\b{name},$", source, re.MULTILINE)
        assert [each for each in attributes if not re.search(rf"\b{each}\b", _source_of(package))] == []


def test_filelock_has_these_variables() -> None:
    folder = _of_framework(f"{frameworks.FILELOCK}_unix.py")
    if folder is None:
        pytest.skip("filelock is not installed")
    source = _source_of("filelock")

    assert any(name in source for name in frameworks.FILELOCK_PATHS)
    assert f"class {frameworks.SOFT_FILELOCK}" in source


# --- modules and environment variables -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "variable"), [(m, v) for m, names in module_names.USED_VARIABLES.items() for v in names]
)
def test_variables_of_modules_exist(module: str, variable: str) -> None:
    file = _class_file(module)

    assert file is not None and re.search(rf"^{variable}\b", file.read_text(), re.MULTILINE)


def test_environment_variables_are_used_by_torch() -> None:
    source = "".join(path.read_text() for path in sorted((_TORCH / "distributed").rglob("*.py")))
    names = [value for value in _values(environment_names).values() if isinstance(value, str) and value.isupper()]

    assert [name for name in names if name not in source and not _is_in_libraries(name)] == []
    assert f'default="{environment_names.NO_RUN_ID}"' in source


def test_dtypes_have_these_numbers_and_names() -> None:
    header = (_TORCH / "include/torch/headeronly/core/ScalarType.h").read_text()
    names = re.findall(r"^ *_\(.*, (\w+)\) /\* \d+ \*/", header, re.MULTILINE)

    assert len(names) == len(dtypes.BY_NUMBER)
    for name, shown in zip(names, dtypes.BY_NUMBER, strict=True):
        assert shown == dtypes.BY_SCALAR_TYPE.get(name, name.lower())
    assert set(dtypes.BY_NUMBER) >= dtypes.COMMON
    assert set(dtypes.BYTES) <= dtypes.COMMON
    assert all(name.endswith(f"float{8 * size}") for name, size in dtypes.BYTES.items())


@pytest.mark.parametrize(
    ("deprecated", "today"),
    [("all_gather_into_tensor", "all_gather_single"), ("reduce_scatter_tensor", "reduce_scatter_single")],
)
def test_both_spellings_of_a_collective_are_in_the_same_tables(deprecated: str, today: str) -> None:
    """torch 2.13 deprecates the longer ones."""
    for table in (call_names.OPERATIONS, call_names.MEETINGS, call_names.FORMS, call_names.TENSOR_ARGUMENTS):
        assert (deprecated in table, today in table) == (True, True)


@pytest.mark.parametrize("call", sorted(call_names.TENSOR_ARGUMENTS))
def test_collectives_have_these_arguments(call: str) -> None:
    tree = ast.parse((_PACKAGES / file_names.C10D).read_text())
    (function,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == call)

    assert {*call_names.TENSOR_ARGUMENTS[call]} <= {argument.arg for argument in function.args.args}


def test_a_batch_is_of_p2p_ops() -> None:
    source = (_PACKAGES / file_names.C10D).read_text()

    assert f"class {call_names.P2P_OP}:" in source
    assert "self.op = " in source
    assert "self.peer = " in source


def test_options_of_torchrun_are_all_there() -> None:
    from torch.distributed.run import get_args_parser

    words = [word for action in get_args_parser()._actions for word in action.option_strings if word.startswith("--")]
    assert {word.lstrip("-").replace("_", "-") for word in words} == launchers.TORCHRUN_OPTIONS
    assert version(metadata.version("torch"))[:2] == launchers.TORCHRUN_READ_IN  # type: ignore[index]


@pytest.mark.parametrize("backend", sorted(launchers.DEFAULT_PORTS))
def test_an_endpoint_without_a_port_has_the_default_one(backend: str) -> None:
    folder = _TORCH / "distributed/elastic/rendezvous"
    file = {"c10d": "c10d_rendezvous_backend.py", "etcd": "etcd_rendezvous.py", "etcd-v2": "etcd_rendezvous_backend.py"}
    source = (folder / file[backend]).read_text()
    (port,) = re.findall(r"parse_rendezvous_endpoint\(params\.endpoint, (?:default_port=)?(\w+)\)", source)
    if not port.isdigit():
        (port,) = re.findall(rf"^{port} = (\d+)$", source, re.M)
    assert port == launchers.DEFAULT_PORTS[backend]


def test_the_static_rendezvous_needs_a_port() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.launcher.api import _get_addr_and_port

    with pytest.raises(ValueError, match="port is missing in endpoint"):
        _get_addr_and_port(RendezvousParameters(launchers.STATIC, "n0", "job", 2, 2))


def test_torchrun_has_these_defaults_flags_and_variables() -> None:
    from torch.distributed import run as torch_run
    from torch.distributed.argparse_util import check_env, env

    actions = {max(each.option_strings, key=len).lstrip("-").replace("_", "-"): each
               for each in torch_run.get_args_parser()._actions if each.option_strings}  # fmt: skip
    texts = {name: str(each.default) for name, each in actions.items()
             if isinstance(each, env) and each.default not in (None, "", [])}  # fmt: skip
    assert re.search(r"if args\.master_port is None:\n\s+args\.master_port = 29500\n", inspect.getsource(torch_run.run))
    assert {**texts, "master-port": "29500"} == launchers.DEFAULTS["torchrun"]
    assert {name for name, each in actions.items() if isinstance(each, check_env)} == launchers.FLAGS & actions.keys()
    without = {name for name, each in actions.items() if not isinstance(each, env | check_env)}
    assert without == launchers.WITHOUT_VARIABLE
    counting = inspect.getsource(torch_run.determine_local_world_size)
    assert all(f'nproc_per_node == "{value}"' in counting for value in launchers.COUNTED)
    assert launchers.COUNTED.keys() == launchers.RANK_PER_CARD | launchers.RANK_PER_CORE


def test_fabric_has_these_defaults() -> None:
    file = _class_file("lightning_fabric.cli")
    source = file.read_text() if file is not None else ""
    found = {}
    for name in launchers.DEFAULTS["fabric"]:
        found[name] = re.findall(rf'"--{name}",(?:\s+"[^"]*",)?\s+type=\w+,\s+default="?([^",]+)', source)
    assert found == {name: [value] for name, value in launchers.DEFAULTS["fabric"].items()}


def test_lightning_takes_the_rank_of_its_node_from_a_variable() -> None:
    file = _class_file("lightning_fabric.plugins.environments.lightning")
    source = file.read_text() if file is not None else ""
    assert f'os.environ.get("{launchers.NODE_RANK}", group_rank)' in source
    assert f'os.environ.get("GROUP_RANK", {launchers.DEFAULT_NODE_RANK})' in source
    assert 'return "LOCAL_RANK" in os.environ' in source


def test_log_folders_of_torchrun_have_random_ends(tmp_path: Path) -> None:
    source = (_TORCH / "distributed/elastic/multiprocessing/api.py").read_text()
    *_, first, then = re.findall(r'mkdtemp\(prefix=f?"([^"]*)"', source)
    (attempt,) = re.findall(r'_run_log_dir, f"(\w+)\{restart_count\}"', source)
    folder = tempfile.mkdtemp(
        prefix=then.format(rdzv_run_id="my_run"), dir=tempfile.mkdtemp(prefix=first, dir=tmp_path)
    )

    shown = re.sub(launchers.RANDOM_FOLDERS, "?", f"{folder}/{attempt}0/1/error.json")
    assert shown == f"{tmp_path}/torchelastic_?/my_run_?/attempt_0/1/error.json"


@pytest.mark.parametrize("module", sorted(launchers.MODULES))
def test_modules_of_launchers_exist(module: str) -> None:
    file = _class_file(module)
    if file is None:
        pytest.skip(f"{module.partition('.')[0]} is not installed")

    assert file.is_file()


# --- the compiled libraries ----------------------------------------------------------------------------------------------


@lru_cache(1)
def _libraries() -> tuple[mmap.mmap, ...]:
    mapped = []
    for path in [*sorted((_TORCH / "lib").glob("libtorch_*.so")), _TORCH / "lib/libc10.so"]:
        if path.stat().st_size <= _LARGEST:
            with path.open("rb") as file:
                mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    return tuple(mapped)


@lru_cache(512)
def _is_in_libraries(text: str) -> bool:
    return any(library.find(text.encode()) >= 0 for library in _libraries())


_HAS_NCCL = (_TORCH / "lib/libtorch_cuda.so").exists()


@pytest.mark.parametrize("name", [thread_names.GLOO_LOOP, thread_names.STORE, "pt_autograd"])
def test_threads_have_these_names(name: str) -> None:
    assert _is_in_libraries(name)


@pytest.mark.parametrize(
    "name", [*sorted(thread_names.GLOO_THREADS - {thread_names.GLOO_LOOP}), thread_names.RPC_POOL, "TP_CMA_loop"]
)
def test_threads_with_short_names_have_these_names(name: str) -> None:
    """They are no text: instructions store them, eight characters at a time."""
    assert _is_in_libraries(name[:8])
    assert thread_names.is_of_library(name)


@pytest.mark.skipif(not _HAS_NCCL, reason="this torch has no NCCL")
def test_threads_of_nccl_have_these_names() -> None:
    assert _is_in_libraries("pt_nccl")


def test_nccl_has_these_names() -> None:
    library = _PACKAGES / "nvidia/nccl/lib/libnccl.so.2"
    if not library.is_file():
        pytest.skip("NCCL is not installed")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        names = [*nccl.VARIABLES, nccl.RAS_ADDRESS]

        assert [name for name in names if mapped.find(name.encode()) < 0] == []


def test_processes_have_these_names() -> None:
    assert f'_set_thread_name("{thread_names.AGENT}")' in (_TORCH / "distributed/run.py").read_text()
    worker = (_PACKAGES / file_names.DATALOADER_WORKER.file).read_text()
    assert f'_set_thread_name("{thread_names.DATALOADER_WORKER}")' in worker


@pytest.mark.parametrize(
    "name", [cpp_names.STORE_SERVER, cpp_names.STORE_CLIENT, cpp_names.STORE_THREAD, cpp_names.RPC_AGENT, cpp_names.RPC_WORKER,
             cpp_names.CURRENT_RPC_AGENT]
)  # fmt: skip
def test_classes_and_symbols_are_in_the_libraries(name: str) -> None:
    assert _is_in_libraries(name)


_OF_GPUS = re.compile(r"NCCL|^omm$")
"""Names that only a torch with NCCL has."""


def _identifiers() -> list[str]:
    """Names of C++ in the patterns of native frames. What may be left out (`all_?reduce`) is left out."""
    patterns = [pattern for pattern, _, _ in cpp_names.OPERATIONS]
    patterns += [
        cpp_names.SEND_OR_RECEIVE,
        cpp_names.WORK_WAIT,
        cpp_names.FUTURE_WAIT,
        cpp_names.STORE_WAIT,
        cpp_names.CONNECT,
    ]
    texts = [re.sub(r"\w\?", "", re.sub(r"\\[a-z]|\[\w+\]", " ", pattern.pattern)) for pattern in patterns]
    return sorted({word for text in texts for word in re.findall(r"[A-Za-z_]{5,}", text) if not _OF_GPUS.search(word)})


@pytest.mark.parametrize("name", _identifiers())
def test_functions_of_native_frames_are_in_the_libraries(name: str) -> None:
    assert _is_in_libraries(name)


def test_libraries_are_named_so() -> None:
    names = [f"/torch/lib/{path.name}" for path in (_TORCH / "lib").iterdir()]

    assert any(name.endswith(cpp_names.LIBTORCH_CPU) for name in names)
    assert any(cpp_names.PYTHON_LIBRARY in name and cpp_names.LIBTORCH_PYTHON.decode() in name for name in names)
    assert any(cpp_names.WITH_RECORDER.search(name) for name in names)


# --- nowhere else --------------------------------------------------------------------------------------------------------

_NAMES_OF_TORCH = re.compile(
    r"torch/|/torch|torch\.(distributed|utils|nn|multiprocessing|_C)\b|\bpt_[a-z]|gloo_|pt_nccl|c10d|_pg_|libtorch|libnccl"
    r"|\d(torch|c10d)\d|ncclComm|/ray/|deepspeed|lightning|/accelerate|accelerate[./]|transformers\.|/tqdm|filelock"
    r"|TORCHELASTIC_|TORCH_WORKER|RAY_RAYLET|SOCKET_IFNAME|_create_c10d|_exit_barrier|init_process_group|_wrap\b|TrainerState"
)
_ELSEWHERE = frozenset({
    "hangdoc/redact/readers.py",  # words that may be kept
    "hangdoc/settings.py",  # the table of what users set
    "hangdoc/watchdog/recorder.py",  # the watchdog imports the standard library only
    "hangdoc/watchdog/run_store.py",
    "hangdoc/watchdog/watchdog.py",
})  # fmt: skip
"""Files that may have such names. This list only becomes shorter."""


def _literals(file: Path) -> Iterator[str]:
    """The texts of a file that are no docstrings and no sentences: a sentence has three words or more."""
    tree = ast.parse(file.read_text())
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in documentation:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if len(text.split()) < 3:
                yield text


def test_names_of_torch_stand_nowhere_else() -> None:
    root = Path(hangdoc.__file__).parent
    files = [file for file in sorted(root.rglob("*.py")) if file.parent.name != "torch_facts"]
    found = {
        str(file.relative_to(root.parent)): texts
        for file in files
        if (texts := [text for text in _literals(file) if _NAMES_OF_TORCH.search(text)])
    }

    assert {file: texts for file, texts in found.items() if file not in _ELSEWHERE} == {}
    assert set(found) >= _ELSEWHERE, "remove from the list what has none any more"


@pytest.mark.parametrize(
    ("kind", "threads", "may"),
    [
        ("cpu", ["python", "pt_gloo_runloop"], True),
        ("cuda", ["python", "pt_gloo_runloop"], False),
        ("cuda", ["python", "pt_gloo_runloop", "pt_nccl_watchdg"], True),
        ("hip", ["python", "pt_nccl_watchdg"], True),
        ("cpu", ["python", "pt_nccl_watchdg"], False),
        ("cuda", ["python", "python"], True),
        ("xpu", ["python", "pt_gloo_runloop"], True),
    ],
)
def test_only_a_backend_with_threads_has_a_record(kind: str, threads: list[str], may: bool) -> None:
    assert thread_names.may_have_record(kind, threads) is may
