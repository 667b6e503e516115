"""Appeals: people contest the pause of a booking, and get an answer with a reason."""
