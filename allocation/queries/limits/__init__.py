"""Reads of what labs, projects and persons have in use of their quotas."""
