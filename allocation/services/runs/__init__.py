"""The life of a booking's run: start, interruption, resumption, end."""
