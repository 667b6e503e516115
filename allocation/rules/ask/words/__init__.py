"""Words in a request: numbers, names and times, and the structured document."""
