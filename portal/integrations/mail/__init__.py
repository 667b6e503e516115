"""Mail to the owners of bookings: queued in the database, sent by SMTP, with retries."""
