"""REST resources for bookings."""
