"""REST resources of labs, of limits of persons, and of limits at some times."""
