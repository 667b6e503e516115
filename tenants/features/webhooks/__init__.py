"""Webhooks: addresses of a tenant, of a project or of the platform that are called at events."""
