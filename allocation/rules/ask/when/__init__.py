"""When a booking is requested for: days, windows, deadlines, series."""
