"""The start page, projects, search and calendars."""
