"""Money games: random lives of bookings, and an oracle that counts what was had."""
