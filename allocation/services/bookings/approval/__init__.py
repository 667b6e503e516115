"""Approvals of bookings: rules, facts, requests and what is decided."""
