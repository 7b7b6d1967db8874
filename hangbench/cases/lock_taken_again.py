"""A handler thread of rank 0 updates the weights under a lock. If a loss is out of range, the update restores older weights,
which takes the same lock again. The main thread waits for the handler, and rank 1 for the weights.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-lock", "in-p2p"]
# operations = ["", "recv"]
# finding = "HD304"
# culprits = [0]
# victims = [1]
# ///
import threading

import torch
import torch.distributed as dist


class Weights:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = torch.zeros(16)

    def update(self, gradient, loss):
        with self.lock:
            self.values -= 0.1 * gradient
            if loss > 100:
                self.restore()
            return self.values.clone()

    def restore(self):
        with self.lock:
            self.values.zero_()


def serve(weights):
    received = torch.zeros(17)
    while True:
        dist.recv(received, src=1)
        dist.send(weights.update(received[:16], float(received[16])), dst=1)


def work():
    values = torch.zeros(16)
    for step in range(1000):
        loss = 3.0 if step < 20 else 30000.0
        dist.send(torch.cat([torch.randn(16), torch.tensor([loss])]), dst=0)
        dist.recv(values, src=0)


dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 0:
    handler = threading.Thread(target=serve, args=(Weights(),), name="serve-1", daemon=True)
    handler.start()
    handler.join()
else:
    work()
