"""Messages of agents: read, verified and applied."""
