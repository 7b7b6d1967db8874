"""Whether the program of a process names a path: then it may make or remove what is there.

Its command line, its environment, the files that its command line names, and the modules beside these that they import are
searched for the name of the path, and for a string that is this name without its extension. Installed packages are not read.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from hangdoc.observe.access.process_files import Root, files_of
from hangdoc.observe.kernel import awaited_files
from hangdoc.observe.kernel.process_table import Entry
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex

_MAX_SECONDS = 0.5
_MAX_PATHS = 1000
"""Most of them are no files: an imported module may be beside the program, or installed."""
_MAX_BYTES = 1 << 20
"""Of a file."""
_IMPORT = regex(r"(?m)^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?import[ \t]+([^#\n]+)")
_NAME = regex(r"\w[\w.]*")


def names_path(proc: ProcFS, entry: Entry, path: str) -> bool:
    """Whether something of the program of a process names a path. Also if its files can't be read: then nothing is known."""
    name = os.path.basename(path)
    environment = entry.environment.values() if isinstance(entry.environment, dict) else ()
    if any(name in word for word in (*entry.argv, *environment)):
        return True
    return _files_name(proc, entry.pid, entry.stat.start_ticks, entry.argv, name)


@lru_cache(256)
def _files_name(proc: ProcFS, pid: int, start_ticks: int, argv: tuple[str, ...], name: str) -> bool:
    stem = os.path.splitext(name)[0]
    texts = (name, f'"{stem}"', f"'{stem}'")
    try:
        home = proc.link(f"{pid}/cwd")
        named = [os.path.normpath(os.path.join(home, word)) for word in (*argv[1:], *_list_modules(argv))]
        local = [path for path in named if awaited_files.at_path(proc, pid, path).mount is None]
        with files_of(proc, pid, start_ticks) as own:
            return own.run(
                lambda root: any(text in each for each in _read_program(root, local, home) for text in texts),
                _MAX_SECONDS,
            )
    except (ProcError, OSError):
        return True


def _list_modules(argv: tuple[str, ...]) -> list[str]:
    """The files of modules that a command line names, below the working directory: `-m jobs.train`."""
    after = [word for flag, word in pairwise(argv) if flag in ("-m", "--module")]
    return [f"{word.replace('.', '/')}.py" for word in after]


def _read_program(root: Root, paths: list[str], home: str) -> Iterator[str]:
    """The text of some files, and of the modules beside them or in `home` that these import."""
    queue = list(dict.fromkeys(paths))
    seen = set(queue)
    for path in queue:
        try:
            text = root.read(path, _MAX_BYTES).raw.decode(errors="replace")
        except OSError:
            continue
        yield text
        modules = _list_imports(text) if path.endswith(".py") else []
        for folder in (os.path.dirname(path), home):
            for module in modules:
                found = [os.path.join(folder, module + end) for end in (".py", "/__init__.py")]
                queue += [each for each in found if each not in seen and len(queue) < _MAX_PATHS]
                seen.update(found)


def _list_imports(text: str) -> list[str]:
    """The modules that a source may import, as paths without an extension."""
    modules = []
    for match in _IMPORT.finditer(text):
        base = (match[1] or "").strip(".").replace(".", "/")
        names = [name.replace(".", "/") for name in _NAME.findall(match[2])]
        modules += [base] * bool(base) + [os.path.join(base, name) for name in names]
    return list(dict.fromkeys(modules))
