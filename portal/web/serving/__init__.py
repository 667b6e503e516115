"""The server of pages and REST: its threads, streams and limits."""
