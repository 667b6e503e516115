"""Desired states of nodes, and messages to open pages."""
