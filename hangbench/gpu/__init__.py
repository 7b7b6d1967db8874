"""Cases on one NVIDIA card, whose ranks talk by real NCCL."""
