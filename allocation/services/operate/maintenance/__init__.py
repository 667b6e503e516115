"""Planned maintenance: planned, previewed, changed, ended, and announced when it is due."""
