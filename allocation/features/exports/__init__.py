"""Exports: files of large statements, which a worker makes for people."""
