"""Slurm as the engine of nodes: each started booking is a job, which is what a program is elsewhere."""
