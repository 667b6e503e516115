"""Input of the solver, read from the database at one instant."""
