"""Reports of agents: read, verified and applied."""
