"""Capacity: machines of providers, the plans that pay for them, and the mix of own and rented GPUs."""
