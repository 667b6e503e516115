"""The sealed log: its chain and its search."""
