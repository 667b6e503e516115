"""Nodes, GPUs and what is known of them."""
