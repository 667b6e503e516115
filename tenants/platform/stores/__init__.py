"""The servers of Redis: their addresses and clients, and the transport of Celery."""
