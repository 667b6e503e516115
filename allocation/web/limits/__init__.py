"""The page of labs, limits of persons, and limits at some times."""
