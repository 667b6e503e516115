"""What demand adds to the core: its task."""

from allocation.features.demand.tasks import allocation_demand

__all__ = ["allocation_demand"]
