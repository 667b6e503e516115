"""Words of a request: numbers, names, times, and the structured document."""
