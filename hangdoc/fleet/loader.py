"""Runs on a host that has no hangdoc. It receives the single file of hangdoc over its standard input, checks it, runs it once for
each request, and removes it when its standard input ends, whatever the reason is.

The text of this module is an argument of `python3 -c` there (see find_python.py). So it imports the standard library only, works
with Python 3.10, and has no character that a login shell treats specially inside single quotes: no single quote, backslash or
exclamation mark.
"""

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

WANTS = "-----HANGDOC WANTS THE FILE-----"
"""Printed when there is a directory for the file. The interpreter follows."""
ENDED = "-----HANGDOC ENDED-----"
"""Printed when the command of a request has ended. Its exit code follows."""
REMOVED = "-----HANGDOC REMOVED-----"
"""Printed when nothing of hangdoc is left on this host."""
_LINE_END = bytes([10])
_MOST_LINE = 1 << 16
_MIB = 1 << 20
_GRACE_SECONDS = 2.0


class Refused(Exception):
    """hangdoc cannot be run on this host. The text is one clause with the reason and the remedy."""


def main(arguments: list[str]) -> None:
    """Receive, run and remove. Arguments: the size of the file, its SHA-256, the bytes that it and its cache take, and after how
    many seconds without a request to end."""
    size, digest, space, patience = int(arguments[0]), arguments[1], int(arguments[2]), float(arguments[3])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    directory = ""
    code = 0
    try:
        directory = tempfile.mkdtemp(prefix="hangdoc-brought-", dir=find_place(space))
        _say(WANTS + " " + sys.executable)
        file = os.path.join(directory, "hangdoc.pyz")
        _receive(file, size, digest, patience)
        _serve(file, directory, patience)
    except Refused as refused:
        print("hangdoc:", refused, file=sys.stderr)
        code = 1
    except OSError as error:
        print("hangdoc:", error.strerror, error.filename or "", file=sys.stderr)
        code = 1
    finally:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _remove(directory)
    sys.exit(code)


def find_place(space: int) -> str:
    """A directory in which hangdoc may store that many bytes and start programs. Raises Refused."""
    places = [os.environ.get("TMPDIR", ""), "/tmp", "/dev/shm", os.environ.get("HOME", "")]  # noqa: S108
    reasons = []
    for place in dict.fromkeys(os.path.realpath(place) for place in places if place.startswith("/")):
        reason = _reason_against(place, space)
        if reason == "":
            return place
        reasons.append(place + " " + reason)
    listed = ", ".join(reasons)
    raise Refused(
        f"no directory of this host can take it ({listed}). It needs {-(-space // _MIB)} MiB where programs may be "
        "started. Make room, or name a directory with --remote-command: env TMPDIR=DIRECTORY hangdoc"
    )


def _reason_against(place: str, space: int) -> str:
    """Why a directory does not fit, in a few words."""
    try:
        about, writable = os.statvfs(place), os.access(place, os.W_OK | os.X_OK)
        shared = _is_shared(place)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if about.f_flag & os.ST_RDONLY:
        return "is read-only"
    if not writable:
        return "may not be written"
    if about.f_flag & os.ST_NOEXEC:
        return "is mounted noexec"
    free = about.f_bavail * about.f_frsize
    if free < space or (about.f_files and about.f_favail == 0):
        return f"is full: {free // _MIB} MiB are free"
    if shared:
        return "can be changed by other users"
    return ""


def _is_shared(place: str) -> bool:
    """Whether other users can replace what is in a directory, or the directory itself."""
    while True:
        about = os.stat(place)
        if about.st_uid not in (0, os.geteuid()) or (about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX):
            return True
        if place == "/":
            return False
        place = os.path.dirname(place)


def _receive(path: str, size: int, digest: str, patience: float) -> None:
    """Write what arrives on standard input into a new file, and check it. Raises Refused and OSError."""
    found, left = hashlib.sha256(), size
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while left:
            part = _read(min(_MOST_LINE, left), patience)
            if part == b"" and left == size:
                raise Refused(
                    "the way to this host passes on no standard input, so the file cannot be sent. Add -i to it, as in "
                    "kubectl exec -i"
                )
            if part == b"":
                raise Refused(f"the connection ended after {size - left} of {size} bytes of the file")
            file.write(part)
            found.update(part)
            left -= len(part)
    if not found.hexdigest() == digest:
        raise Refused("the file that arrived is not the one that was sent (its SHA-256 differs), so it was not run")


def _serve(file: str, directory: str, patience: float) -> None:
    """Run hangdoc for each request, until standard input ends or no request comes. A request is one line of JSON: `arguments`,
    `seconds` for the command, and `stdin`, whether the command reads what follows."""
    while True:
        line = bytearray()
        while not line.endswith(_LINE_END):
            byte = _read(1, patience)  # one at a time, because what follows the line may be for the command
            if byte == b"" or len(line) > _MOST_LINE:
                return
            line += byte
        try:
            request = json.loads(line)
        except ValueError:
            return  # the command has ended before it read all that was for it
        _say(ENDED, _run(file, directory, request["arguments"], request["seconds"], request["stdin"]))


def _run(file: str, directory: str, arguments: list[str], seconds: float, stdin: bool) -> int:
    """The exit code of hangdoc with these arguments. It is ended when its time is over or the connection is gone."""
    private = dict.fromkeys(("TMPDIR", "PEX_ROOT", "XDG_CACHE_HOME"), directory)
    options = "-ISB" if sys.flags.no_site else "-IB"
    child = subprocess.Popen(
        [sys.executable, options, file, *arguments],
        stdin=None if stdin else subprocess.DEVNULL,
        env={**os.environ, **private},
        start_new_session=True,
    )
    until = time.monotonic() + seconds
    connection = select.poll()
    connection.register(0, select.POLLRDHUP)  # POLLHUP and POLLERR are always reported
    try:
        while child.poll() is None and time.monotonic() < until:
            gone = connection.poll(20)
            if gone and not stdin:
                break
            if gone:
                time.sleep(0.02)  # the command reads the end itself
    finally:
        _end_session(child)
    return child.returncode


def _end_session(child: "subprocess.Popen[bytes]") -> None:
    """End a command and what it has started."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _read(most: int, patience: float) -> bytes:
    """What arrives on standard input; nothing if it has ended or nothing comes in time."""
    ready, _, _ = select.select([0], [], [], patience)
    return os.read(0, most) if ready else b""


def _remove(directory: str) -> None:
    if directory:
        shutil.rmtree(directory, ignore_errors=True)
        if os.path.lexists(directory):
            print("hangdoc: could not remove", directory, file=sys.stderr)
            return
    _say(REMOVED)


def _say(*words: object) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        print(*words, flush=True)


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main(sys.argv[1:])
