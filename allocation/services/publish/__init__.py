"""Desired states of nodes, and messages for open pages."""
