"""Changes of bookings and series over REST."""
