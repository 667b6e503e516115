"""Turn-round: the time between two bookings of a device, measured and announced."""
