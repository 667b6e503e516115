"""Overrides: exceptions from limits, from the request for one to its end."""
