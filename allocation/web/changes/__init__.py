"""The page on which a booking is changed."""
