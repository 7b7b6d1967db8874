"""Filters the names that threads and processes give themselves."""

from functools import lru_cache

from hangdoc.redact.names import names_a_secret
from hangdoc.redact.patterns import REDACTED, text
from hangdoc.redact.shapes import NOT_STORED, is_plain, names_a_setting
from hangdoc.redact.vocabulary import WORDS
from hangdoc.regex import regex

_PARTS = regex(r"([-_.:/#@()\[\], ]+|<str>(?: \d{1,4})?|<redacted>)")
_RUNS = regex(r"(?P<before>[\w-]{1,40} \()(?P<function>[A-Za-z_]{1,60})\)")
"""`Thread-1 (serve)`, as threading names a thread after its function."""
_NAMED = regex(r"(?P<name>[A-Za-z_][\w.-]{0,80})\s{0,4}[=:]")
_OF_MACHINES = regex(
    r"(?:pt|gloo|nccl|cuda|TP|jemalloc|rdma|ib|ucx|grpc|arrow|iou|omp|mlx|uv|RAY|ray|kworker|ksoftirqd|jbd|nfs|nfsd|rcu|kswapd|ZMQbg)"
    r"[_/-][A-Za-z_:/-]{0,14}\d{0,4}"
    r"|(?:VLLM|sglang)::[A-Za-z]{1,20}(?:_[A-Za-z]{1,15}\d{0,4}){0,12}"
)
"""Threads of torch, its libraries and the kernel, and processes of serving engines."""
_OF_ACTORS = regex(r"ray::[A-Za-z_]{1,80}\d{0,3}(?:\.[A-Za-z_]{1,80}\d{0,3})?")
"""The class of an actor of Ray, and its method: names of functions, as stacks have them."""
_PROGRAM = regex(r"[A-Za-z][A-Za-z_.+-]{0,14}\d{0,2}(?:\.\d{1,2}){0,2}|s[35]cmd|[a-z]7z|7z\w?|bzip2|sha\d+sum|md5sum")
_KNOWN_PROGRAMS = frozenset({
    "cc1plus", "clang++", "containerd-shim", "gcc", "gdb", "jupyter-lab", "lldb", "nvcc", "pdb", "scp", "sshd", "zsh",
})  # fmt: skip
"""Programs that debug, compile or copy, and shells, whose names do not look like words."""
_KERNEL_LENGTH = 15
"""The kernel cuts the names of threads to this (TASK_COMM_LEN)."""


@lru_cache(4096)
def thread(name: str) -> str:
    """The name of a thread: those that Python, torch and the kernel give, and words of the field; `<str>` replaces others."""
    if len(name) > 200:
        return NOT_STORED
    secret = next((match for match in _NAMED.finditer(name) if names_a_secret(match["name"])), None)
    if secret is not None:  # where its value ends is not known, so the rest of the name belongs to it
        shown = secret["name"] if names_a_setting(secret["name"]) else NOT_STORED
        sign = secret[0][len(secret["name"]) :]
        return f"{thread(name[: secret.start()])}{shown}{sign}{REDACTED}"
    if is_plain(name, 0) or _OF_MACHINES.fullmatch(name):
        return name
    if _OF_ACTORS.fullmatch(name):
        return text(name, strict=True)
    runs = _RUNS.fullmatch(name)
    if runs is not None and is_plain(runs["function"], 3):
        return f"{thread(runs['before'][:-2])} ({runs['function']})"
    parts = _PARTS.split(name)
    cut = len(name) == _KERNEL_LENGTH
    shown = [_part(part, cut=cut and at == len(parts) - 1) if at % 2 == 0 else part for at, part in enumerate(parts)]
    return "".join(shown)


def _part(part: str, *, cut: bool) -> str:
    if not part or part == REDACTED or is_plain(part, 0):
        return part
    if cut and part.isalpha() and any(word.startswith(part.lower()) for word in WORDS):
        return part
    return NOT_STORED


@lru_cache(1024)
def program(name: str) -> str:
    """The short name of a process, which is its program's unless it has set another one."""
    if name in _KNOWN_PROGRAMS or (_PROGRAM.fullmatch(name) and is_plain(name.replace("_", "-"), 1)):
        return name
    return thread(name)
