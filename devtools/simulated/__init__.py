"""Simulated GPUs and programs behind the same ports."""
