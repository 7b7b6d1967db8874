"""Runs a command as if hangdoc were not there: same standard streams, same process group, same signals and exit code.

There are three processes. This one starts the command, waits, and passes signals on. The second is the command. The third, the
observer, is forked from this one and does everything that could fail. The command continues when the other two are killed.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hangdoc.phrases import amount
from hangdoc.priority import give_way
from hangdoc.watch.group_signals import GroupSignals, state

STOPPED_CODE = 86
"""Exit code after `--on-hang stop`. The observer exits with it to request the stop."""
NOT_EXECUTABLE, NOT_FOUND = 126, 127
_FROM_OURSELVES = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGSYS,
}
_OURS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGCHLD}
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_PASSED_ON = {number for number in signal.valid_signals() if number not in _FROM_OURSELVES | _OURS}
_WAITED_FOR = _PASSED_ON | {signal.SIGCHLD}
_SAME_SECONDS = 1.0
_FINISH_SECONDS = 20.0
"""How long the observer may take to finish a report after the command has ended."""
_KILL_SECONDS = 5.0
_MOST_OF_REASON = 4096
"""Bytes, which a pipe takes at once."""
_PR_SET_CHILD_SUBREAPER = 36


class Lifeline:
    """Ends the observer when its command, or the process that started it, has ended."""

    def __init__(self, reading_end: int) -> None:
        self._end = reading_end
        self.at_end: Callable[[], None] = lambda: None
        self._busy = threading.Lock()
        threading.Thread(target=self._end_with_it, name="lifeline", daemon=True).start()

    def held(self) -> threading.Lock:
        """A lock. While it is held, the observer may finish its work (a report)."""
        return self._busy

    def _end_with_it(self) -> None:
        os.read(self._end, 1)
        self._busy.acquire(timeout=_FINISH_SECONDS)
        with contextlib.suppress(Exception):
            self.at_end()
        os._exit(0)


Observe = Callable[[int, Lifeline], str | None]
"""Given the command's pid; returns why the command must be stopped, or None when it has ended. Called in the observer."""


class StartError(Exception):
    """The command can't be started; `exit_code` is what a shell would return."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run(command: Sequence[str], observe: Observe, grace: float, log: Callable[[str], None]) -> int:
    """Run the command under an observer and return its exit code, or 86 if the observer requested its stop: SIGTERM to all of its
    processes, and SIGKILL after `grace` seconds. If a signal killed the command, the same signal ends this process.

    Raises StartError.
    """
    return _Running(command, grace, log).wait(observe)


class _Running:
    def __init__(self, command: Sequence[str], grace: float, log: Callable[[str], None]) -> None:
        self._grace, self._log = grace, log
        # Blocked before the start, so that no signal is lost; the command gets the mask as it was.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the parent may ignore it, and then waitpid would not work
        ctypes.CDLL(None).prctl(
            _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0
        )  # orphans of the command become our children, so that `stop` finds them
        self._command = _spawn(command, self._mask)
        self._program = command[0]
        self._observer: int | None = None
        self._lifeline: int | None = None
        self._group_signals: GroupSignals | None = None
        self._job_control: int | None = None
        """The signal that asked to stop for a while (Ctrl-Z), until the command has stopped."""
        self._whole_group: dict[int, float] = {}
        self._ended: int | None = None
        """The command's wait status."""
        self._kill_at: float | None = None
        """Set while the command is being stopped."""
        self._killed = False
        self._reason: int | None = None
        """Where to read why the observer has the command stopped."""
        self._why = ""

    def wait(self, observe: Observe) -> int:
        try:
            self._fork_observer(observe)
        except OSError as error:
            self._log(f"hangdoc does not observe the command: {error.strerror}")
        while True:
            info = self._next_signal()
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._pass_on(info)
            self._reap()
            if self._kill_at is not None:
                if self._stopped():
                    self._log(f"stopped a hung run (exit code {STOPPED_CODE}): {self._why}")
                    return STOPPED_CODE
            elif self._ended is not None:
                self._let_observer_finish()
                return _as_exit_code(self._ended)

    def _fork_observer(self, observe: Observe) -> None:
        life, self._lifeline = os.pipe()
        reading, writing = os.pipe()
        self._reason, reason = os.pipe()
        self._observer = os.fork()
        if self._observer:
            os.close(life)
            os.close(writing)
            os.close(reason)
            self._group_signals = GroupSignals(self._observer, reading)
            return
        code = 1
        try:
            os.close(self._lifeline)
            os.close(reading)
            self._become_observer(writing)
            why = observe(self._command, Lifeline(life))
            if why is not None:
                os.write(reason, why.encode("utf-8", "replace")[:_MOST_OF_REASON])
            code = 0 if why is None else STOPPED_CODE
        except BaseException as error:
            with contextlib.suppress(Exception):
                self._log(f"the observer failed ({type(error).__name__}: {error})")
        finally:
            os._exit(code)

    def _become_observer(self, signals: int) -> None:
        """Stay out of the command's way: never read its input, write to its output, or compete for its CPU."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        # It is in the same process group, so Ctrl-Z stops it too. Other signals to the group it only reports.
        os.set_blocking(signals, False)
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        for number in _PASSED_ON - _JOB_CONTROL - {signal.SIGCONT}:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        give_way()
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(
                "1000"
            )  # when memory runs out, the kernel kills the observer first

    # --- signals -------------------------------------------------------------------------------------------------------

    def _next_signal(self) -> signal.struct_siginfo | None:
        """The next signal; None after a timeout if there is other work."""
        if self._kill_at is not None:
            return signal.sigtimedwait(_WAITED_FOR, 0.1)
        if not self._whole_group:
            return signal.sigwaitinfo(_WAITED_FOR)
        info = signal.sigtimedwait(_WAITED_FOR, _SAME_SECONDS)
        if info is None:
            self._whole_group.clear()
            if self._group_signals is not None:
                self._group_signals.read()  # late ones do not belong to the next signal
        return info

    def _pass_on(self, info: signal.struct_siginfo) -> None:
        """Pass a signal to the command, unless the whole process group got it: then the command has it already."""
        number = info.si_signo
        if number == signal.SIGCONT:
            self._wake()
            return
        if not self._reached_group(number, by_kernel=info.si_code > 0):  # SI_KERNEL: the terminal's, for the group
            self._send(self._command, number)
        if number in _JOB_CONTROL:
            self._job_control = number
            if state(self._command) == "T":  # its SIGCHLD may have been read before this signal
                self._stop_ourselves()

    def _reached_group(self, number: int, by_kernel: bool) -> bool:
        """Whether a signal went to the whole process group."""
        last = self._whole_group.get(number, 0.0)
        reached = by_kernel or time.monotonic() - last < _SAME_SECONDS  # one event, sent to us and to the group
        if number not in _JOB_CONTROL and self._observer is not None and self._group_signals is not None:
            reached = self._group_signals.has(number) or reached
        self._whole_group[number] = time.monotonic() if reached else 0.0
        return reached

    def _stop_ourselves(self) -> None:
        """Stop as the command did, so that a shell sees a stopped job; returns when continued."""
        number, self._job_control = self._job_control, None
        if number is None:
            return
        if self._observer is not None and state(self._observer) != "T":
            self._send(self._observer, signal.SIGSTOP)  # a run that its user stopped is not a hang
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        self._wake()

    def _wake(self) -> None:
        """Continue processes that are still stopped, because SIGCONT may have been sent only to us."""
        self._job_control = None
        for pid in (self._command, self._observer):
            if pid is not None and state(pid) == "T":
                self._send(pid, signal.SIGCONT)

    def _send(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or belongs to another user now
            os.kill(pid, number)

    # --- ends ----------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect children that have ended: the command, the observer, or an adopted orphan."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                if pid == self._command and os.WSTOPSIG(status) in _JOB_CONTROL:
                    self._stop_ourselves()
            elif pid == self._command:
                self._ended = status
            elif pid == self._observer:
                self._observer = None
                code = os.waitstatus_to_exitcode(status)
                if code == STOPPED_CODE and self._ended is None and self._reason is not None:
                    self._why = os.read(self._reason, _MOST_OF_REASON).decode("utf-8", "replace")
                    self._stop_command()
                elif code != 0:
                    self._log(f"the observer exited with code {code}. The command continues without observation.")

    def _stop_command(self) -> None:
        self._kill_at = time.monotonic() + self._grace
        others = len(_list_descendants()) - 1
        with_others = f" and the {others} other process{'es' * (others > 1)} that it started" if others > 0 else ""
        self._log(
            f"--on-hang stop: because of this hang, hangdoc ends {self._program} (pid {self._command}){with_others}, and exits "
            f"with code {STOPPED_CODE}"
        )
        self._send_to_all(signal.SIGTERM)
        self._send_to_all(signal.SIGCONT)  # a stopped process handles SIGTERM when it continues

    def _stopped(self) -> bool:
        """Whether all processes of the command have ended, or cannot be ended. Kills those that are left after the grace
        period."""
        left = _list_descendants()
        now = time.monotonic()
        if not left or self._kill_at is None:
            return True
        if now >= self._kill_at:
            if not self._killed:
                self._log(
                    f"sent SIGKILL to {amount(len(left), 'process', 'es')} that had not ended {self._grace:g} s after SIGTERM"
                )
                self._killed = True
            self._send_to_all(signal.SIGKILL)
        if now >= self._kill_at + _KILL_SECONDS:
            self._log(f"pid {', '.join(map(str, left))} did not end after SIGKILL: it is blocked in the kernel")
            return True
        return False

    def _send_to_all(self, number: int) -> None:
        for pid in _list_descendants():
            self._send(pid, number)

    def _let_observer_finish(self) -> None:
        """Give the observer a few seconds to finish a report, unless a signal asks to end now."""
        if self._observer is None or self._lifeline is None:
            return
        os.close(self._lifeline)
        until = time.monotonic() + _FINISH_SECONDS
        while self._observer is not None:
            info = signal.sigtimedwait(_WAITED_FOR, max(0.0, until - time.monotonic()))
            if info is None or info.si_signo in _ENDING:
                self._send(self._observer, signal.SIGKILL)
                return
            self._reap()


def _spawn(command: Sequence[str], mask: set[signal.Signals] | set[int]) -> int:
    program = command[0]
    try:
        # Unlike fork and exec from Python, this keeps all inherited file descriptors (a jobserver's, a pipe from the
        # shell). Python itself ignores two signals, so the command gets their defaults back.
        return os.posix_spawnp(
            program, list(command), os.environ, setsigmask=mask, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
        )
    except FileNotFoundError:
        if "/" in program and os.path.exists(program):
            raise StartError(
                f"{program} cannot be executed: the interpreter in its first line does not exist.", NOT_FOUND
            ) from None
        where = "there is no such file" if "/" in program else "no such command in PATH"
        raise StartError(f"{program}: {where}.", NOT_FOUND) from None
    except OSError as error:
        raise StartError(f"{program} cannot be executed: {error.strerror}.", NOT_EXECUTABLE) from None


def _as_exit_code(status: int) -> int:
    """The command's exit code. If a signal killed it, the same signal ends this process, so that our parent sees the same
    status."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    number = -code
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has written its own core
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number  # reached if the signal does not kill us, as the first process of a container


def _list_descendants() -> list[int]:
    """The processes that descend from this one and have not ended."""
    import psutil

    try:
        descendants = psutil.Process().children(recursive=True)
    except psutil.Error:
        return []
    return [process.pid for process in descendants if state(process.pid) not in ("Z", "X", "")]
