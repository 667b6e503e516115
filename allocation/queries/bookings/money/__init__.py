"""What bookings cost: projects, statements, spending."""
