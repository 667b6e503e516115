"""Longer runs: who may have one, and their turns."""
