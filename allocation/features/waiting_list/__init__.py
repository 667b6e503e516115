"""The waiting list: bookings that wait for a full window, and places that are offered to them."""
