"""Another program listens on the master port and never answers, and the ranks of this job connect to it. They wait in
the rendezvous forever.
"""

# /// hangbench
# launch = "environment"
# situation = "port-taken"
# verdict = ["hung"]
# finding = "HD402"
# culprits = [0]
# victims = [1]
# ready = 1
# ///
import os
import sys

import torch.distributed as dist

print("ready", flush=True)
if os.environ["RANK"] == "0":
    sys.exit("EADDRINUSE, as rank 0 of such a job ends")
dist.init_process_group("gloo")
