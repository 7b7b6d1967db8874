"""A small, honest nanochat-style pretrainer, with switchable faults."""
