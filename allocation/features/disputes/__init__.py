"""Disputes: people say that a statement is wrong, and an operator answers once."""
