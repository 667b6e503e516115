"""Input and output of the solver: snapshots, demands, plans, and their canonical bytes."""
