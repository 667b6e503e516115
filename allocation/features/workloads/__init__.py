"""Workloads: what finished runs of a kind of work have shown, and what follows for the next one."""
