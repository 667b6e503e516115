"""Data sets in the node's cache folder: listing them, and fetching those that a booking needs."""
