"""REST resources of hardware."""
