"""Messages, events and webhooks over REST."""
