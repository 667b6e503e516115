"""Kubernetes with Kueue as the engine of nodes: each started booking is a queue with its quota."""
