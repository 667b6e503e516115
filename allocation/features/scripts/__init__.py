"""Scripts: a program that comes with a booking, runs when it starts, and ends it."""
