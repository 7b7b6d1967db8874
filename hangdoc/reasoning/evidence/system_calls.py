"""System calls by what a thread waits for in them (names as in `KernelThread.syscall`)."""

SLEEP = frozenset({"nanosleep", "clock_nanosleep"})
CHILD = frozenset({"wait4", "waitid"})
READ = frozenset({"read", "pread64", "readv", "preadv"})
WRITE = frozenset({"write", "pwrite64", "writev", "pwritev", "sendfile", "splice"})
ON_FILES = frozenset({"open", "openat", "openat2", "fsync", "fdatasync", "msync", "fallocate", "getdents64"})
FILE_LOCK = frozenset({"fcntl", "flock"})
NETWORK = frozenset(
    ["connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "recvmmsg", "sendmmsg", "poll", "ppoll",
     "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"]
)  # fmt: skip
EVENT_LOOP = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "pselect6", "select"})
SIGNAL = frozenset({"pause", "rt_sigsuspend", "rt_sigtimedwait"})
FUTEX = "futex"
