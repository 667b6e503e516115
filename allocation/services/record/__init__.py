"""Records that every service writes: history, costs, counters, conflicts."""
