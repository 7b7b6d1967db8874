"""Runs a command that may not look into other processes, as under Yama or in a container without CAP_SYS_PTRACE: a seccomp
filter refuses ptrace(2) and process_vm_readv(2) with EPERM (x86-64)."""

import ctypes
import os
import struct
import sys

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001
steps = (
    (LOAD, 0, 0, 0),
    (JUMP_IF_EQUAL, 1, 0, 101),
    (JUMP_IF_EQUAL, 0, 1, 310),
    (RETURN, 0, 0, EPERM),
    (RETURN, 0, 0, ALLOW),
)
program = b"".join(struct.pack("HBBI", *step) for step in steps)
code = ctypes.create_string_buffer(program)
filter_ = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 5, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS"
assert libc.prctl(22, 2, filter_, 0, 0) == 0, "PR_SET_SECCOMP"
os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
