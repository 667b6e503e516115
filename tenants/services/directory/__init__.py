"""The directory of a tenant: its token, and the people that it creates, disables and removes."""
