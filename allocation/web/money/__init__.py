"""Pages about the money of bookings."""
