"""Arrays: many runs of one request, of which so many are bookings at a time."""
