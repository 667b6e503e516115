"""Queries on bookings: lists, details, timeline, calendars, projects."""
