"""Rank 0 uploads its metrics to a server that accepted the connection and never answers. Rank 1 waits for it in DDP's
all-reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["waiting-io", "in-collective"]
# operations = ["", "all_reduce"]
# finding = "HD202"
# culprits = [0]
# victims = [1]
# ///
import http.client
import multiprocessing
import socket
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def mute_server(pipe):
    server = socket.create_server(("127.0.0.1", 0))
    pipe.send(server.getsockname()[1])
    connections = [server.accept()]
    time.sleep(100_000)
    connections.clear()


def report(port, step):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/metrics", body=f"step={step}")
    return connection.getresponse().status


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    if me == 0:
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("spawn").Process(target=mute_server, args=(theirs,), daemon=True).start()
        port = ours.recv()
    print("ready", flush=True)
    for step in range(100):
        model(torch.randn(4, 8)).sum().backward()
        if me == 0 and step == 8:
            report(port, step)


if __name__ == "__main__":
    main()
