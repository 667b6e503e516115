"""One cycle from snapshot to plan, and quotes by the same search."""
