"""Nodes, their GPUs, their health and their accounts at Redis."""
