"""Times in a request: days, windows, deadlines and series."""
