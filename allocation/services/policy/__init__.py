"""Versions of the solver's policy."""
