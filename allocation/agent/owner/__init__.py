"""What a booking's owner has on the node: accounts, device permissions, files, hooks, notices."""
