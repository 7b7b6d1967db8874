"""A server waits for its next request: an HTTP thread of
rank 0 puts requests into a queue that its main thread
waits for, and rank 1 waits for the broadcast."""

# /// hangbench
# verdict = ["waiting"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///

import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch.distributed as dist

jobs = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        answer = queue.Queue()
        jobs.put((self.rfile.read(int(self.headers["Content-Length"])), answer))
        self.wfile.write(answer.get())


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    while True:
        body, answer = jobs.get() if dist.get_rank() == 0 else (None, None)
        prompt = [body]
        dist.broadcast_object_list(prompt, src=0)
        if answer is not None:
            answer.put(prompt[0])


main()
