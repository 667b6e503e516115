"""Read side of bookings and hardware: data for pages, programs and the solver."""
