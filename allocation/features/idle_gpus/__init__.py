"""Idle GPUs of a gang: readings by GPU, and giving back single ones."""
