"""Pause notices and pauses."""
