"""Tokens and service accounts."""
