"""Progress: how far a running program says that it is, and when it ends at this rate."""
