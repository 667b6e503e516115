"""Messages and where they go."""
