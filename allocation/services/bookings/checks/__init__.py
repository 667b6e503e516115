"""What a request for a booking is checked against: tiers, persons, places, policy hooks."""
