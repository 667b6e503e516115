"""The waiting list: its candidates, offers and groups."""
