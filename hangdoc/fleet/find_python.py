"""The command that brings hangdoc to a host: a shell finds a Python there, which runs `loader`.

The text for the shell is one line without single quotes and exclamation marks, so that every login shell passes it on unchanged.
It needs sh, and for the interpreters of ranks id, stat, find, grep and readlink.
"""

import json
import pkgutil

_FITS = "import ctypes, hashlib, json, sys, zlib; sys.exit(sys.version_info < (3, 10) or sys.version_info >= (3, 15))"
_STANDARD = "/usr/sbin:/usr/bin:/sbin:/bin"
_ON_PATH = (
    f"PATH=${{PATH:-{_STANDARD}}}; "
    f'fits() {{ "$@" -c "{_FITS}" 2>/dev/null; }}; '
    "for p in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do "
    'if fits "$p" -IB; then exec "$p" -IBc "$0" "$@"; fi; done; '
)
# closed FILE: whether only root can have put anything into the Python with this executable: itself, what it imports with -I -S,
# and all directories above. A file that leads it to another standard library is not followed: then the answer is no.
CLOSED = (
    'alone() { f=$1; while :; do case $(stat -c "%u %a" "$f" 2>/dev/null) in "0 1"???) [ -d "$f" ] || return 1;; '
    '"0 "*[2367]|"0 "*[2367]?) return 1;; "0 "*) ;; *) return 1;; esac; '
    'if [ "$f" = / ]; then return 0; fi; f=${f%/*}; f=${f:-/}; done; }; '
    'clean() { x=$(find -L "$@" -perm /022 -print -o -uid +0 -print 2>&1) && [ -z "$x" ] && '
    'find -H "$@" -type l -print | while IFS= read -r l; do alone "$(readlink -f "$l")" || exit 1; done; }; '
    'closed() ( set +f; d=${1%/*}; b=${1%/bin/*}; [ "$(readlink -f "$1")" = "$1" ] && alone "$1" || exit 1; '
    'for l in "$d"/*._pth "$d/pyvenv.cfg" "$b/pyvenv.cfg" "$d/pybuilddir.txt"; do '
    'if [ -e "$l" ] || [ -h "$l" ]; then exit 1; fi; done; '
    'for l in "$b"/lib "$b"/lib64 "$b"/lib*/python3*; do if [ -e "$l" ]; then alone "$(readlink -f "$l")" || exit 1; '
    'fi; done; for l in "$b"/lib "$b"/lib64; do if [ -e "$l" ]; then '
    'clean "$l" -maxdepth 1 -type l -prune -o || exit 1; fi; done; '
    'clean "$b"/lib*/python3* -name site-packages -prune -o -name dist-packages -prune -o ); '
)
_OF_A_RANK = (
    f"PATH=$PATH:{_STANDARD}; {CLOSED}u=$(id -u); "
    'for d in /proc/[0-9]*; do e=$(readlink "$d/exe" 2>/dev/null) || continue; '
    'case "${e##*/}" in python3*) ;; *) continue;; esac; '
    'grep -q libtorch "$d/maps" 2>/dev/null || continue; '
    '[ "$d/exe" -ef "$e" ] || continue; '  # not that of another mount namespace
    'if [ "$u" = 0 ]; then closed "$e" || continue; '
    'else [ "$(stat -c %u "$d")" = "$u" ] || continue; fi; '
    'if fits "$e" -ISB; then exec "$e" -ISBc "$0" "$@"; fi; done; '
)
_NONE = (
    "echo hangdoc: the host has no Python 3.10 to 3.14 on its PATH, and no running rank has one that may be used: "
    "install one, or install hangdoc there >&2; exit 1"
)


def command(*arguments: str) -> tuple[str, ...]:
    """The words that run `loader` with these arguments."""
    source = pkgutil.get_data(__package__, "loader.py")
    assert source is not None  # noqa: S101
    return ("sh", "-c", _ON_PATH + _OF_A_RANK + _NONE, f"exec({json.dumps(source.decode())})", *arguments)
