"""Tiers of a tenant: the limits that its admins set inside the operator's bounds."""
