"""Pages of bookings, hardware and the site."""
