"""Which RAS services the observed ranks have."""

import os
from collections import Counter
from typing import NamedTuple

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.procfs import network_of
from hangdoc.snapshot import Ras, RasAnswer, Unavailable
from hangdoc.torch_facts.nccl import RAS_ADDRESS

DEFAULT_ADDRESS = "localhost:28028"
"""NCCL_RAS_CLIENT_PORT in NCCL's src/ras/ras_internal.h."""
_MOST_SERVICES = 8
"""Of one user: in each network namespace, and at each address that the ranks name."""

Key = tuple[str, int, str]
"""Network namespace, user, address."""


class Service(NamedTuple):
    """The RAS service of some ranks: those of one user in one network namespace, with one address."""

    namespace: str
    namespace_file: str | None
    """As for `create_in`."""
    user: int
    address: str
    targets: tuple[Target, ...]
    beside: tuple[Target, ...]
    """All observed ranks of the user in the namespace."""

    @property
    def key(self) -> Key:
        """What distinguishes it."""
        return self.namespace, self.user, self.address

    def result(self, answer: RasAnswer | Unavailable) -> Ras:
        """What the snapshot has of it."""
        pids = tuple(target.pid for target in self.targets)
        return Ras(namespace=self.namespace, address=self.address, processes=pids, answer=answer)


def find_services(observation: Observation) -> list[Service]:
    """The services of all ranks, by their environment. Those whose namespace or environment can't be read have none."""
    own = network_of(observation.proc, os.getpid())
    beside: dict[tuple[str, int], list[Target]] = {}
    by_key: dict[Key, list[Target]] = {}
    for target in observation.ranks():
        namespace, user = network_of(observation.proc, target.pid), observation.proc.user(target.pid)
        if target.state in "ZX" or not namespace or user is None or isinstance(target.environment, Unavailable):
            continue
        address = (target.environment | target.live_environment).get(RAS_ADDRESS) or DEFAULT_ADDRESS
        beside.setdefault((namespace, user), []).append(target)
        by_key.setdefault((namespace, user, address), []).append(target)
    services = []
    of_user: Counter[int] = Counter()
    for (namespace, user, address), targets in by_key.items():
        of_user[user] += 1
        if of_user[user] <= _MOST_SERVICES:
            file = f"{observation.proc.root}/{targets[0].pid}/ns/net" if namespace != own else None
            services.append(Service(namespace, file, user, address, tuple(targets), tuple(beside[namespace, user])))
    for user, count in of_user.items():
        if count > _MOST_SERVICES:
            observation.problems.append(
                f"NCCL's RAS is read at {_MOST_SERVICES} of the {count} addresses of uid {user}"
            )
    return services
