"""The timeline page."""
