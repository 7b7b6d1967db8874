"""Users made for a test: children of this process with a uid of their own, in a directory that they may enter."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path

VICTIM, MALLORY = 60_001, 60_002
"""Uids that no account has."""


def run_as(uid: int, act: Callable[[], None]) -> int:
    """Call a function in a child with this uid, without groups. Returns 0, 1 if it raised, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o022)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def private_file(path: Path, owner: int, content: bytes = b"precious") -> Path:
    """A file that only its owner may read."""
    path.write_bytes(content)
    path.chmod(0o600)
    os.chown(path, owner, owner)
    return path
