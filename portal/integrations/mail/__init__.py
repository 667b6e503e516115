"""Mail to the owners of bookings: owed in the database, sent by SMTP, tried again until it is."""
