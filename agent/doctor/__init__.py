"""`agent doctor`: the checks of a node and their report."""
