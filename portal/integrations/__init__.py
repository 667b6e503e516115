"""Channels for committed messages: one package per channel."""
