"""Overrides: people ask for more than a limit allows, and its owner grants, declines and ends it."""
