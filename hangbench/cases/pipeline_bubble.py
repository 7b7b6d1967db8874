"""A pipeline of three stages passes activations on; stage 2 waits for one
microbatch more than stage 1 sends. Stages 0 and 1 are at the barrier after their
loop."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["in-collective", "in-collective", "in-p2p"]
# operations = ["barrier", "barrier", "recv"]
# finding = "HD204"
# culprits = [1]
# victims = [0, 2]
# ///
import torch
import torch.distributed as dist


def stage(me, world, microbatches):
    for mb in range(microbatches):
        activation = torch.zeros(32)
        if me > 0:
            dist.recv(activation, src=me - 1)
        activation = torch.tanh(activation + mb)
        if me < world - 1:
            dist.send(activation, dst=me + 1)


def main():
    dist.init_process_group("gloo")
    me, world = dist.get_rank(), dist.get_world_size()
    print("ready", flush=True)
    stage(me, world, 8 if me < world - 1 else 9)
    dist.barrier()


main()
