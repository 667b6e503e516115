"""Pages of people and accounts."""
