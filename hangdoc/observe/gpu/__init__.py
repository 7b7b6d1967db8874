"""Evidence of NCCL and of the cards."""
