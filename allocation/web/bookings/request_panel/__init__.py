"""The panel that asks for a booking."""
