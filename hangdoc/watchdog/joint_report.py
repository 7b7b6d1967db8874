"""How the hosts of a run make one report: each puts its bundle into the run store, one gathers them, all read its report.

If the run store does not answer, a shared directory does the same. Without either, each host reports on its own.
"""

import time

from hangdoc.private_directory import PrivateDirectory
from hangdoc.watchdog.hang_directory import clean
from hangdoc.watchdog.run_store import RunStore

_DEFER_SECONDS = 8.0
"""How long hosts without rank 0 wait for the report of the host that has it: users read its log first."""
_GATHER_SECONDS = 8.0
_ALONE_SECONDS = 2.0
"""The limit if the run store does not answer. Files in a shared directory are visible by then."""
_PAUSE_SECONDS = 0.1
REPORT = "report.txt"
_MAX_BYTES = 128 << 20


class JointReport:
    """The part of one host. `ranks` are on this host, `elsewhere` on other hosts."""

    def __init__(
        self, folder: PrivateDirectory, host: str, ranks: list[int], elsewhere: list[int], run_store: RunStore
    ) -> None:
        self._folder, self._host, self._ranks, self._elsewhere, self._run_store = (
            folder,
            host,
            ranks,
            elsewhere,
            run_store,
        )
        self._fetched: set[int] = set()

    def share(self, bundle: str) -> None:
        """Send this host's bundle, a file of the directory, to the host that reports."""
        if not self._elsewhere:
            return
        number = self._run_store.count(self._key("hosts"), 1)
        if number is not None:
            self._fetched.add(number)
            content = self._host.encode() + b"\n" + self._folder.read(bundle, _MAX_BYTES)
            self._run_store.put(self._key(f"bundle/{number}"), content)
            self._run_store.count(self._key("ranks"), len(self._ranks))

    def reports(self) -> bool:
        """Whether this host reports. Waits first for the report of a host that has precedence, and saves it."""
        if self._elsewhere and 0 not in self._ranks and self._arrives(self._patience(_DEFER_SECONDS)):
            return False
        try:
            first = self._folder.claim("report.claim")
        except OSError:
            return False
        if first and self._elsewhere:  # if the run store does not answer, the directory decides
            first = self._run_store.first(self._key("reporter"), self._host) is not False
        if not first:
            self._arrives(self._patience(_DEFER_SECONDS + _GATHER_SECONDS))
        return first

    def gather(self) -> None:
        """Wait for the bundles of all hosts, for a few seconds."""
        until = time.monotonic() + (self._patience(_GATHER_SECONDS) if self._elsewhere else 0.0)
        while time.monotonic() < until and not (self._fetch() or self._all_here()):
            time.sleep(_PAUSE_SECONDS)

    def publish(self) -> None:
        """Send the report to the other hosts."""
        if self._elsewhere and self._folder.has(REPORT):
            self._run_store.put(self._key("report"), self._folder.read(REPORT, _MAX_BYTES))

    def _patience(self, seconds: float) -> float:
        return min(seconds, _ALONE_SECONDS) if self._run_store.silent else seconds

    def _arrives(self, seconds: float) -> bool:
        """Wait for another host's report and save it. Returns whether it arrived in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._folder.has(REPORT):
                return True
            if (text := self._run_store.get(self._key("report"))) is not None:
                self._folder.write(REPORT, text)
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    def _fetch(self) -> bool:
        """Fetch bundles from the run store. Returns whether those of all hosts are here."""
        hosts = self._run_store.count(self._key("hosts"), 0) or 0
        for number in set(range(1, hosts + 1)) - self._fetched:
            raw = self._run_store.get(self._key(f"bundle/{number}"))
            if raw is not None:
                host, _, bundle = raw.partition(b"\n")
                name = f"host-{clean(host.decode('utf-8', 'replace'))}.hangdoc"
                if not self._folder.has(name):
                    self._folder.write(name, bundle)
                self._fetched.add(number)
        seen = self._run_store.count(self._key("ranks"), 0) or 0
        return len(self._fetched) == hosts and seen >= len(self._ranks) + len(self._elsewhere)

    def _all_here(self) -> bool:
        """Whether a shared directory contains the files of all ranks and hosts."""
        names = set(self._folder.names())
        ranks = all(f"rank-{rank}.stacks.txt" in names for rank in self._elsewhere)
        hosts = (name.removesuffix(".claim") for name in names if name.startswith("host-") and name.endswith(".claim"))
        return ranks and all(f"{host}.hangdoc" in names for host in hosts)

    def _key(self, name: str) -> str:
        return f"{self._folder.path.name}/{name}"
