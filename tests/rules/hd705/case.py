"""HD705: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import LinkPort, Links, Snapshot
from tests.rules.shapes import gpu_rank
from tests.unit.builders import snapshot


def _with(*ports: LinkPort) -> Snapshot:
    return snapshot(gpu_rank(0), gpu_rank(1), links=Links(ports=ports))


def port(device: str, state: str, physical: str, *pids: int, **grown: int) -> LinkPort:
    return LinkPort(
        device=device, port=1, layer="InfiniBand", state=state, physical_state=physical, pids=pids, grown=grown,
        received_bytes=0, sent_bytes=0,
    )  # fmt: skip


def fires() -> Snapshot:
    """Rank 1 has the device of a port open that is down."""
    return _with(port("mlx5_0", "ACTIVE", "LinkUp", 100), port("mlx5_1", "DOWN", "Polling", 101))


def quiet() -> Snapshot:
    """A port is down that no rank uses, and a port is congested."""
    return _with(
        port("mlx5_0", "ACTIVE", "LinkUp", 100, 101, np_cnp_sent=900, out_of_sequence=3),
        port("mlx5_1", "DOWN", "Disabled"),
    )
