"""Simulated sites: workloads, traces and their metrics."""
