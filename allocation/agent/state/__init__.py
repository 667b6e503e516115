"""What the agent keeps on disk, and which documents it follows."""
