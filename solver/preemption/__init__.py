"""Which bookings are paused for which, and what that frees."""
