"""Approvals, overrides and versions of tiers."""
