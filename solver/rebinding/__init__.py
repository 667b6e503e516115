"""New places for planned work, so that more fits."""
