"""Webhooks: events are published and queued with the outbox, and sent by a program of its own."""
