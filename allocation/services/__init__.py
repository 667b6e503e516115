"""The only writers of bookings and hardware. Each call is one transaction or joins the caller's."""
