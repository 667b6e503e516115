"""Databases, backups and the archive."""
