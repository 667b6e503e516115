"""Data sets: what nodes have in their cache folders, and bookings that are placed near it."""
