"""Queries on bookings and hardware, for pages, REST and services."""
