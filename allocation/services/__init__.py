"""The only code that writes bookings and hardware. Each call is one transaction or joins its
caller's."""
