"""Booking requests: admission, price, and changes by people."""
