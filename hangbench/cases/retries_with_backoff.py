"""Rank 1 requests data from a mirror that refuses it, and sleeps between its hundred
attempts; rank 0 waits for it at a barrier. The mirror may work again, so this is not a
hang."""

# /// hangbench
# verdict = ["waiting"]
# states = ["in-collective", "sleeping"]
# operations = ["barrier", ""]
# finding = "HD202"
# severity = "info"
# culprits = [1]
# victims = [0]
# patience = 1.0
# ///
import socket
import time

import torch.distributed as dist


def fetch(port, attempts=100):
    for _attempt in range(attempts):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(20)
    raise TimeoutError


dist.init_process_group("gloo")
closed = socket.socket()
closed.bind(("127.0.0.1", 0))
print("ready", flush=True)
if dist.get_rank() == 1:
    fetch(closed.getsockname()[1])
dist.barrier()
