"""What the kernel log has of faults that programs cause on the card: Xid 31 (bad address) and Xid 43 (device-side assert)."""

import subprocess
import sys
from pathlib import Path

_BAD_ADDRESS = """
import cupy
kernel = cupy.RawKernel('extern "C" __global__ void f(){ *(volatile int*)0x123450000 = 1; }', 'f')
kernel((1,), (1,), ())
cupy.cuda.runtime.deviceSynchronize()
"""
_ASSERT = """
import torch
x = torch.zeros(4, device='cuda')
print(x[torch.tensor([99], device='cuda')].sum().item())
"""
_MATMUL = """
import time, torch
a = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)
until = time.time() + {seconds}
while time.time() < until:
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
"""


def run_program(program: str, output: Path, seconds: float) -> None:
    """Run a program of Python and keep what it prints."""
    with output.open("wb") as file:
        try:
            subprocess.run(
                [sys.executable, "-c", program], stdout=file, stderr=subprocess.STDOUT, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            file.write(b"\n!! did not end\n")


def cause_faults(folder: Path) -> None:
    """Cause both, one after the other."""
    run_program(_BAD_ADDRESS, folder / "fault-address.txt", 40)
    run_program(_ASSERT, folder / "fault-assert.txt", 40)


def load_card(folder: Path, seconds: float) -> None:
    """Keep the card busy with matrix products, for what a full card looks like."""
    run_program(_MATMUL.format(seconds=seconds), folder / "matmul.txt", 30 + seconds)


def keep_kernel_log(output: Path) -> None:
    """The last lines of the kernel log."""
    with output.open("wb") as file:
        try:
            subprocess.run(["dmesg"], stdout=file, stderr=subprocess.STDOUT, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            file.write(f"\n!! {error!r}\n".encode())
