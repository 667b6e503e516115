"""Approval rules: which new bookings wait for an approval, and who decides them."""
