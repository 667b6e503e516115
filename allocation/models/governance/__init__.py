"""Approvals, overrides, requirements and versions of tiers."""
