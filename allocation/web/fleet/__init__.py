"""Pages of nodes, GPUs and maintenance."""
