"""Kubernetes as the engine of nodes: each started booking is a queue of Kueue, or without it a quota."""
