"""Overrides: which exception from a limit a booking uses, and what one that waits can ask for."""
