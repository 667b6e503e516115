"""Policy hook: an address of an organisation that admits, changes or denies its requests."""
