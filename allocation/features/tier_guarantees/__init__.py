"""Guarantees by tier: some of an organisation's guaranteed GPUs count only for bookings of some tiers."""
