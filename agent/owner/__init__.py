"""What the owner of a booking gets on the node: accounts, device access, files, hooks, notices."""
