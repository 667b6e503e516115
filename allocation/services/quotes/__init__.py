"""What a request could get, when and for how much, before it is booked."""
