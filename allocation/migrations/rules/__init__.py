"""What the tables of hardware and bookings hold to, as SQL: one module for each noun."""
