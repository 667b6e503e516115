"""Hand-overs: a booking that has not begun gets another owner, who has accepted it."""
