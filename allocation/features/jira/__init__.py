"""Jira: issues and sprints ask for bookings, and bookings report to their issues."""
