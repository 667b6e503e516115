"""Changes of bookings and series."""
