"""REST resources for hardware."""
