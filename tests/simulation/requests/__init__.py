"""Changes of bookings, the waiting list, offers and arrays, in the model portal."""
