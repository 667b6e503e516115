"""Operators' actions: maintenance, drains, planned outages, site set-up."""
