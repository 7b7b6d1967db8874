"""Rank 1 waits for two replies of a service of another job, each in a thread. The service works on them. Rank 0 waits for rank 1
at the barrier."""

# /// hangbench
# verdict = ["waiting"]
# states = ["in-collective", "waiting-io"]
# operations = ["barrier", ""]
# finding = "HD202"
# severity = "info"
# culprits = [1]
# victims = [0]
# patience = 2
# ///
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import torch.distributed as dist

SERVICE = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Judge(BaseHTTPRequestHandler):
    def do_GET(self):
        while True:
            hash(self.path)

server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
print(server.server_port, flush=True)
server.serve_forever()
"""


def other_job():
    """Starts a process that is no child of this rank, and returns its port."""
    shell = ["bash", "-c", '"$0" -c "$1" &', sys.executable, SERVICE]
    started = subprocess.Popen(
        shell, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    return int(started.stdout.readline())


def score(address):
    service = HTTPConnection(address, timeout=3600)
    service.request("GET", "/")
    return service.getresponse().read()


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    port = other_job()
print("ready", flush=True)
if dist.get_rank() == 1:
    with ThreadPoolExecutor(2) as pool:
        print(len(list(pool.map(score, 2 * [f"127.0.0.1:{port}"]))), flush=True)
dist.barrier()
