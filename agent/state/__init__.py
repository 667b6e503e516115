"""The agent's state on disk, and the documents that it follows."""
