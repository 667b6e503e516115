"""What is counted of worlds, and what was found wrong in them."""

from dataclasses import dataclass, field


@dataclass
class Found:
    """What the oracle has counted of one world."""

    cycles: int = 0
    pauses: int = 0
    bookings: int = 0
    moved: int = 0
    makespan: int = 0
    rings: list[str] = field(default_factory=list)
    pairs: list[str] = field(default_factory=list)
    inside_guarantee: list[str] = field(default_factory=list)
    later: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    messages: int = 0
    mixed: int = 0
    """Bookings of several classes that have started."""
    requests: dict[str, int] = field(default_factory=dict)
