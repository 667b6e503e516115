"""Charges of bookings and variances."""
