"""REST resources of decisions."""
