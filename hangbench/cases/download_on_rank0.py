"""Rank 0 downloads a file slowly while the others wait for it at a barrier. Bytes keep arriving, and nothing is wrong."""

# /// hangbench
# verdict = ["waiting"]
# states = ["", "in-collective"]
# operations = ["", "barrier"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///
import multiprocessing
import socket
import time

import torch.distributed as dist


def slow_server(pipe):
    server = socket.create_server(("127.0.0.1", 0))
    pipe.send(server.getsockname()[1])
    connection, _ = server.accept()
    while True:
        connection.sendall(bytes(20_000))
        time.sleep(0.1)


def download(port):
    data = bytearray()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for chunk in iter(lambda: connection.recv(1 << 16), b""):
            data += chunk
    return data


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.get_context("spawn").Process(target=slow_server, args=(theirs,), daemon=True).start()
        port = ours.recv()
    print("ready", flush=True)
    if dist.get_rank() == 0:
        download(port)
    dist.barrier()


if __name__ == "__main__":
    main()
