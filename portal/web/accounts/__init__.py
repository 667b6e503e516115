"""Signing in and a person's own account."""
