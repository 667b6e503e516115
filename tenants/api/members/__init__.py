"""People, service accounts and invitations over REST."""
