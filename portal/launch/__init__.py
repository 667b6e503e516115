"""Starts and supervises the portal's programs on one machine."""
