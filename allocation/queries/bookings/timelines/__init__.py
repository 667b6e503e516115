"""Bookings over time."""
