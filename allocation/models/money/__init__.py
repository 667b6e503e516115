"""Charges of bookings, disputes and variances."""
