"""Pages of messages, webhooks and policy hooks."""
