"""Reads decisions for people: the bookings that each changed, and the reasons."""
