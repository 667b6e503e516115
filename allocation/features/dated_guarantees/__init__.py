"""Dated guarantees: an organisation is guaranteed another number of GPUs between two dates."""
