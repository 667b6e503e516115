"""Charges of bookings, variances, and formats of statements."""
