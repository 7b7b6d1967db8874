"""A plain model server: a front end that answers HTTP, and three ranks with shards of one model.

The front end writes requests into a ring in shared memory. Rank 0 polls the ring every 20 ms, and broadcasts what it
finds. Ranks 1 and 2 wait in the broadcast. Rank 0 writes the answers into a second ring, which the front end polls.

python model_server.py --port 8000 --ready ready.json
POST / with {"tokens": [1, 2, 3], "stop": "..."} returns {"tokens": [...]}.
"""

import argparse
import json
import logging
import multiprocessing
import os
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import torch
import torch.distributed as dist

SHARDS = 3
VOCABULARY, WIDTH = 999, 64
POLL_SECONDS = 0.02
log = logging.getLogger("model-server")


class Ring:
    """A ring of messages in shared memory, with one writer and one reader. Its first 16 bytes are the two counters."""

    SLOTS, SLOT_BYTES = 64, 4096

    def __init__(self, name: str, create: bool = False) -> None:
        self.memory = SharedMemory(name, create, 16 + self.SLOTS * self.SLOT_BYTES)

    def _counters(self) -> tuple[int, int]:
        written, read = struct.unpack_from("<QQ", self.memory.buf)
        return written, read

    def put(self, message: dict) -> None:
        """Write a message. Waits while the ring is full."""
        data = json.dumps(message).encode()
        while True:
            written, read = self._counters()
            if written - read < self.SLOTS:
                break
            time.sleep(POLL_SECONDS)
        start = 16 + written % self.SLOTS * self.SLOT_BYTES
        struct.pack_into(f"<I{len(data)}s", self.memory.buf, start, len(data), data)
        struct.pack_into("<Q", self.memory.buf, 0, written + 1)

    def get(self) -> dict:
        """Read the next message. Waits until there is one."""
        while True:
            written, read = self._counters()
            if read < written:
                break
            time.sleep(POLL_SECONDS)
        start = 16 + read % self.SLOTS * self.SLOT_BYTES
        (length,) = struct.unpack_from("<I", self.memory.buf, start)
        message = json.loads(bytes(self.memory.buf[start + 4 : start + 4 + length]))
        struct.pack_into("<Q", self.memory.buf, 8, read + 1)
        return message


class Shard(torch.nn.Module):
    """The part of a tiny language model that one rank holds: a range of the vocabulary, and its own output layer."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.first = rank * VOCABULARY // SHARDS
        self.table = torch.nn.Embedding(VOCABULARY // SHARDS, WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.last_shard = rank == SHARDS - 1

    def forward(self, tokens: list[int]) -> torch.Tensor:
        """Logits of the next token."""
        ids = torch.tensor(tokens) - self.first
        # The last shard takes whatever is beyond the other ones.
        mine = ids[(ids >= 0) & (ids < self.table.num_embeddings)] if not self.last_shard else ids[ids >= 0]
        hidden = self.table(mine).sum(0)
        dist.all_reduce(hidden)
        logits = self.head(torch.tanh(hidden))
        dist.all_reduce(logits)
        return logits


def cut_at_stop(tokens: list[int], stop: list[int]) -> list[int]:
    """The tokens before the first place where the stop sequence is."""
    position = 0
    while position < len(tokens):
        if tokens[position : position + len(stop)] == stop and stop:
            return tokens[:position]
        position += min(len(stop), 1)
    return tokens


def answer(model: Shard, request: dict, rank: int) -> list[int]:
    """Continue the tokens of a request by eight."""
    tokens = list(request["tokens"])
    if "stop" in request and rank == 1:  # the rank with the detokenizer
        tokens = cut_at_stop(tokens, request["stop"])
    for _ in range(8):
        tokens.append(int(model(tokens).argmax()))
    return tokens[-8:]


def serve_shard(rank: int, port: int, names: tuple[str, str]) -> None:
    """One rank: wait for the next request, answer it, and again."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(message)s")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=SHARDS)
    model = Shard(rank).eval()
    requests, answers = Ring(names[0]), Ring(names[1])
    log.info("serves")
    if rank == 0:
        answers.put({"ready": True})
    with torch.inference_mode():
        while True:
            box = [requests.get() if rank == 0 else None]
            dist.broadcast_object_list(box, src=0)
            request = box[0]
            try:
                result = {"id": request["id"], "tokens": answer(model, request, rank)}
            except Exception as error:
                # One bad request must not end the server.
                log.exception("request %s failed", request["id"])
                result = {"id": request["id"], "error": str(error)}
            if rank == 0:
                answers.put(result)


class FrontEnd(ThreadingHTTPServer):
    """Passes requests to rank 0, and answers to who has asked."""

    def __init__(self, port: int, requests: Ring, answers: Ring) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.requests, self.answers = requests, answers
        self.lock, self.count = threading.Lock(), 0
        self.waiting: dict[int, tuple[threading.Event, list]] = {}
        threading.Thread(target=self.pass_answers, name="answers", daemon=True).start()

    def pass_answers(self) -> None:
        """Wake up each request's thread when its answer has come."""
        while True:
            result = self.answers.get()
            event, box = self.waiting.pop(result["id"])
            box.append(result)
            event.set()

    def ask(self, request: dict) -> dict:
        """Put a request into the ring, and wait for its answer."""
        event, box = threading.Event(), []
        with self.lock:
            self.count += 1
            request["id"] = self.count
            self.waiting[self.count] = event, box
            self.requests.put(request)
        event.wait()
        return box[0]


class Handler(BaseHTTPRequestHandler):
    """GET /health, POST /."""

    server: FrontEnd

    def do_GET(self) -> None:
        """Health: the front end lives."""
        self.reply({"status": "ok"})

    def do_POST(self) -> None:
        """Continue the tokens in the body."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(self.server.ask(body))

    def reply(self, document: dict) -> None:
        """Send a document."""
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: one line for each request is too much."""


def main() -> None:
    """Start the ranks, then serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s front end %(message)s")
    names = f"requests-{os.getpid()}", f"answers-{os.getpid()}"
    requests, answers = Ring(names[0], create=True), Ring(names[1], create=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    ranks = [
        spawn.Process(target=serve_shard, args=(rank, rendezvous, names), name=f"shard-{rank}", daemon=True)
        for rank in range(SHARDS)
    ]
    for process in ranks:
        process.start()
    answers.get()  # rank 0 is ready
    server = FrontEnd(options.port, requests, answers)
    roles = {"front end": os.getpid()} | {f"rank {rank}": process.pid for rank, process in enumerate(ranks)}
    part = options.ready.with_suffix(".part")
    part.write_text(json.dumps({"roles": roles, "url": f"http://127.0.0.1:{options.port}/"}))
    part.rename(options.ready)
    log.info("listens on port %d", options.port)
    server.serve_forever()


if __name__ == "__main__":
    main()
