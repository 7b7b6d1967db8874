"""A served model: rank 0 waits for a request on its socket, and rank 1 waits for rank 0 in
broadcast_object_list. There is no request at the moment. Nothing is wrong, however long it
lasts."""

# /// hangbench
# verdict = ["waiting"]
# states = ["waiting-io", "in-collective"]
# operations = ["", "broadcast_object_list"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# patience = 1.0
# ///
import socketserver

import torch.distributed as dist


class Request(socketserver.StreamRequestHandler):
    def handle(self):
        dist.broadcast_object_list([self.rfile.readline()], src=0)


dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 0:
    with socketserver.TCPServer(("127.0.0.1", 0), Request) as server:
        server.serve_forever(poll_interval=3600)
while True:
    dist.broadcast_object_list([None], src=0)
