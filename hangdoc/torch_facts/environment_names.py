"""Environment variables of torch, and the names under which it can be asked.

Read in torch 2.13 unless other versions are given.
"""

RUN_ID = "TORCHELASTIC_RUN_ID"
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""torchrun's agent sets both for each rank (torch/distributed/elastic/agent/server/local_elastic_agent.py)."""
NO_RUN_ID = "none"
"""torchrun's default run id for a static rendezvous (torch/distributed/run.py), which identifies no run."""
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
WORKER_SERVER_SOCKET = "TORCH_WORKER_SERVER_SOCKET"
"""Where the worker server listens (torch/distributed/elastic/control_plane.py)."""
DUMP_HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
"""What a worker server is asked for: a dump of the flight recorder of any backend, and of NCCL. A torch without NCCL (2.13)
has only the first."""
GLOO_INTERFACE, TENSORPIPE_INTERFACE, NCCL_INTERFACE = "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
"""Network interfaces (NCCL: the beginnings of their names)."""
INTERFACES = (GLOO_INTERFACE, TENSORPIPE_INTERFACE, NCCL_INTERFACE)
INTERFACE_ENDING = "SOCKET_IFNAME"
