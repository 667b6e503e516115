"""The decision cycle: solve, apply the plan, record it, check it."""
