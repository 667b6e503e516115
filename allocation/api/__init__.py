"""REST resources of bookings and hardware."""
