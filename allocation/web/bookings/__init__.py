"""Pages of bookings and series."""
