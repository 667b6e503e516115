"""The solver's input, read from the database at one instant."""
