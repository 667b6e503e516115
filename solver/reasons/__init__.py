"""Codes, rules and the facts of a reason: what the solver and the services cite."""
