"""Limit cuts: what happens to bookings above a limit that was lowered: keep, drain or pause."""
