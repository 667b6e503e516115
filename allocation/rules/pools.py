"""Pools: nodes that one plan of capacity pays for, and the bookings that may use them. Pure.

The solver sees the GPUs of a class in a pool as a class of its own. So nobody else's booking is
planned on them, and quotas, which share the site's own GPUs, do not count them.
"""

PREFIX = "plan-"
"""What names of pools begin with."""
# No slug of a class has this sign.
_MARK = f"@{PREFIX}"


def pool_name(key: str) -> str:
    """The name of the pool of a plan."""
    return f"{PREFIX}{key}"


def pooled(gpu_class: str, pool: str) -> str:
    """The class as the solver knows it in a pool; outside of pools, the class."""
    return f"{gpu_class}@{pool}" if pool else gpu_class


def is_pooled(name: str) -> bool:
    """Whether the name is of a class in a pool."""
    return _MARK in name


def class_of(name: str) -> str:
    """The class that `pooled` made into this name."""
    return name.partition(_MARK)[0]
