"""Engines: one agent for the hosts of a scheduler, and operators' approval of these hosts."""
