"""Demand: how many GPUs will be asked for and in use, and what follows for bookings and purchases."""
