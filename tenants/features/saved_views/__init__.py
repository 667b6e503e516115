"""Saved views: filters and the order of a list that a person keeps under a name, alone or for all."""
