"""A small nanochat-style pretrainer with faults that can be switched on."""
