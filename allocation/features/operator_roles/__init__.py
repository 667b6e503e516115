"""Roles of operators: who has which, since when, and the second operator for a role that may do all."""
