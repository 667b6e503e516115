"""Roles of operators: who has which, since when, and the second operator for those who may do all."""
