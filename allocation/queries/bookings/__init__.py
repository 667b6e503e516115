"""Read side of bookings: lists, details, timeline, calendars."""
