"""torchrun started two ranks, but the script makes a process group only on a GPU, so two
independent copies train on the CPU. The run is not hung, but not what its user
intended."""

# /// hangbench
# verdict = ["healthy"]
# finding = "HD506"
# severity = "warning"
# culprits = [0, 1]
# ///
import torch
import torch.distributed as dist

if torch.cuda.is_available():
    dist.init_process_group("nccl")
model = torch.nn.Linear(128, 128)
print("ready", flush=True)
for step in range(10**9):
    model(torch.randn(256, 128)).sum().backward()
