"""People, invitations and access."""
