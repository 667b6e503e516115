"""Starts and supervises the portal's programs on one machine, for the demo and the tests."""
