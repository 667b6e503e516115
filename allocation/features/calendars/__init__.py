"""Calendars: secret addresses of bookings to which calendar programs subscribe."""
