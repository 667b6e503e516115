"""Free room and use over REST."""
