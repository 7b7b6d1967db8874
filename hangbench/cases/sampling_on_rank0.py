"""Rank 0 generates text, token by token, while the others wait at the barrier after it. It is slow and not hung."""

# /// hangbench
# ranks = 3
# verdict = ["waiting"]
# states = ["evaluating", "in-collective", "in-collective"]
# operations = ["", "barrier", "barrier"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1, 2]
# ///
import torch
import torch.distributed as dist


@torch.no_grad()
def generate(model, tokens):
    state = torch.randn(1, 128)
    out = []
    for _ in range(tokens):
        state = torch.tanh(model(state))
        out.append(int(state.argmax()))
    return out


def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(128, 128)
    print("ready", flush=True)
    for step in range(100):
        dist.all_reduce(model.weight.detach())
        if step == 10:
            if dist.get_rank() == 0:
                generate(model, 50_000_000)
            dist.barrier()


main()
