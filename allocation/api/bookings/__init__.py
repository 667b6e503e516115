"""REST resources of bookings."""
