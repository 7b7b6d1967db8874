"""The file-system rights of the owner of a process, taken on by one thread (credentials(7), capabilities(7)).

setfsuid(2), setfsgid(2), setgroups(2) and capset(2) change the calling thread alone. glibc's setgroups changes all threads of the
process, so that system call is made directly. A thread that has taken on rights keeps them: nothing gives them back.
"""

import ctypes
import os
import platform
import stat
from typing import NamedTuple

from hangdoc.procfs import ProcError, ProcFS

_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())
"""The number of setgroups(2): arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h."""
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_PTRACE = 19
_PR_SET_SECUREBITS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 28, 47, 2
_NO_SETUID_FIXUP = 1 << 2
"""linux/capability.h, linux/prctl.h, linux/securebits.h."""
_UNCHANGED = ctypes.c_uint(-1 & 0xFFFFFFFF)
"""setfsuid(2) changes nothing for this id, and returns the present one."""

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(OSError):
    """A file that hangdoc does not read. `strerror` is one clause with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(0, reason)
        self.reason = reason


class Rights(NamedTuple):
    """With what the kernel decides which files a process may read."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: int
    """The effective ones as a bit mask; 0 for a process in another user namespace, whose capabilities are not valid here."""


def rights_of(proc: ProcFS, task: str) -> Rights:
    """The rights of the process `task` (a directory in /proc), as this process's user namespace sees them. Raises ProcError, and
    Refused for a process that runs a set-user-ID program: it acts for one user with the rights of another."""
    uids, gids, groups, effective = proc.fields(task, "Uid", "Gid", "Groups", "CapEff")
    try:
        users, main_groups = {int(word) for word in (uids or "").split()}, {int(word) for word in (gids or "").split()}
        others = tuple(int(word) for word in (groups or "").split())
        capabilities = int(effective or "0", 16)
    except ValueError as error:
        raise ProcError(f"{proc.root}/{task}/status has an unknown format") from error
    if len(users) != 1 or len(main_groups) != 1 or runs_set_user_id(proc, task):
        raise Refused("the process runs with the rights of several users")
    same_namespace = proc.link(f"{task}/ns/user") == proc.link("self/ns/user")
    return Rights(users.pop(), main_groups.pop(), others, capabilities if same_namespace else 0)


def runs_set_user_id(proc: ProcFS, task: str) -> bool:
    """Whether a process runs a set-user-ID or set-group-ID program that another user started. It may have all ids of its new
    user by now, but its environment, arguments and working directory are the choice of the other one. False for one that can't be
    read."""
    try:
        return proc.is_secure(task) and bool(proc.program_mode(task) & (stat.S_ISUID | stat.S_ISGID))
    except ProcError:
        return False


def take_on(rights: Rights) -> None:
    """Give this thread the rights, for good. Raises Refused if hangdoc may not have them."""
    groups = (ctypes.c_uint * len(rights.groups))(*rights.groups)
    same_groups = _SETGROUPS is not None and _libc.syscall(_SETGROUPS, len(rights.groups), groups) == 0
    _libc.setfsgid(ctypes.c_uint(rights.gid))
    _libc.setfsuid(ctypes.c_uint(rights.uid))
    now = _libc.setfsuid(_UNCHANGED) & 0xFFFFFFFF, _libc.setfsgid(_UNCHANGED) & 0xFFFFFFFF
    own_user = (os.geteuid(), os.getegid()) == (rights.uid, rights.gid)
    if now != (rights.uid, rights.gid) or not (same_groups or own_user):
        raise Refused(
            f"hangdoc can't read with the rights of its owner (uid {rights.uid}): run it as that user, or as root with "
            "CAP_SETUID and CAP_SETGID"
        )
    _lower_capabilities(rights.capabilities)


def lend_ptrace() -> None:
    """Prepare this thread to start programs of other users that may read all processes, and have no other right of root. They get
    CAP_SYS_PTRACE as an ambient capability, which survives the change of the user and the exec that follow (capabilities(7)).
    Raises Refused if hangdoc may not."""
    header, words = _own_capabilities()
    words[0].inheritable |= 1 << _SYS_PTRACE
    if (
        _libc.capset(ctypes.byref(header), words) != 0
        or _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _SYS_PTRACE, 0, 0) != 0
        or _libc.prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0) != 0
    ):
        raise Refused(f"hangdoc can't lend CAP_SYS_PTRACE: {os.strerror(ctypes.get_errno())}")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _lower_capabilities(kept: int) -> None:
    """Drop the effective capabilities of this thread that are not among `kept` (capset(2))."""
    header, words = _own_capabilities()
    for number, word in enumerate(words):
        word.effective &= kept >> (32 * number) & 0xFFFFFFFF
    if _libc.capset(ctypes.byref(header), words) != 0:
        raise Refused(f"capset: {os.strerror(ctypes.get_errno())}")


def _own_capabilities() -> "tuple[_Header, ctypes.Array[_Capabilities]]":
    """Those of this thread, for capset(2)."""
    header, words = _Header(_CAPABILITY_VERSION_3, 0), (_Capabilities * 2)()
    if _libc.capget(ctypes.byref(header), words) != 0:
        raise Refused(f"capget: {os.strerror(ctypes.get_errno())}")
    return header, words
