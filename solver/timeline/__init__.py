"""Use of GPUs, shares, host cores and memory over time."""
