"""Stands in for the libraries of CUDA, so that torch with CUDA starts on a machine without them.

All missing libraries are one, under all their names. Each of its functions returns an error, so torch finds no GPU. That is
enough for Gloo, and for the recorder of the CUDA library, which itself needs no GPU.
"""

import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

_ERROR = 100
"""cudaErrorNoDevice."""
_TEXTS = {
    "cudaGetErrorString", "cudaGetErrorName", "ncclGetErrorString", "ncclGetLastError", "cublasGetStatusString",
    "cudnnGetErrorString",
}  # fmt: skip
"""Functions that return a text."""
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def stub_missing_libraries(tree: Path) -> Path:
    """The folder with stubs of all libraries that the torch unpacked in `tree` needs and that are not here. Needs binutils and
    gcc."""
    own = sorted((tree / "torch" / "lib").glob("*.so*"))
    needed = {name for library in own for name in _NEEDED.findall(_output("readelf", "-dW", str(library)))}
    needed -= {library.name for library in own}
    system = _system_libraries()
    folder = tree / "stubs"
    folder.mkdir()
    _compile_stub(folder / "libstub.so", _missing_symbols(own, [system[name] for name in needed if name in system]))
    for name in needed - system.keys():
        (folder / name).symlink_to("libstub.so")
    return folder


def _system_libraries() -> dict[str, str]:
    """Paths of the installed libraries by name (ldconfig(8))."""
    lines = (line.split() for line in _output("ldconfig", "-p").splitlines()[1:])
    return {words[0]: words[-1] for words in reversed(list(lines)) if "x86-64" in " ".join(words)}


def _missing_symbols(own: list[Path], present: list[str]) -> dict[str, set[str]]:
    """The functions that no library has, with the versions in which they are needed (`libcudart.so.12`; "" is none)."""
    wanted: dict[str, set[str]] = defaultdict(set)
    defined: set[str] = set()
    for library in (*map(str, own), *present):
        for line in _output("nm", "-D", "--with-symbol-versions", library).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, version = symbol.partition("@")
            if kind not in "Uwv":
                defined.add(name)
            elif kind == "U" and library not in present:
                wanted[name].add(version.strip("@"))
    # Python's own functions are in its executable.
    return {name: wanted[name] for name in sorted(wanted) if name not in defined and not name.startswith(("Py", "_Py"))}


def _compile_stub(library: Path, symbols: dict[str, set[str]]) -> None:
    lines = [".text"]
    for name, versions in symbols.items():
        body = "lea text(%rip), %rax" if name in _TEXTS else f"mov ${_ERROR}, %eax"
        for number, version in enumerate(sorted(versions)):
            label = f"{name}__{number}" if version else name
            lines += [f".globl {label}", f".type {label}, @function", f"{label}: {body}", "ret"]
            if version:
                lines.append(f".symver {label}, {name}{'@@' if len(versions) == 1 else '@'}{version}")
    lines += [".section .rodata", 'text: .asciz "stub"', '.section .note.GNU-stack, "", @progbits', ""]
    source, script = library.with_suffix(".s"), library.with_suffix(".map")
    source.write_text("\n".join(lines))
    names = sorted({version for versions in symbols.values() for version in versions if version})
    script.write_text("".join(f"{name} {{ }};\n" for name in names))
    versioned = [f"-Wl,--version-script={script}"] if names else []
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", str(library), str(source), *versioned], check=True)


def _output(*command: str) -> str:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "LC_ALL": "C"}
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
