"""What every service writes down: history, costs, counters, conflicts."""
