"""Rows of the database that a snapshot is made of."""
