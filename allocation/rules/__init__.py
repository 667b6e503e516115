"""Rules of booking and charging: what may be asked for, and what follows. Pure."""
