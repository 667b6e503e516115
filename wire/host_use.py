"""What the programs of a booking use of the host."""

import dataclasses

from wire.fields import ADDED, Count, Name, Small

HOST_USES_MAX = 256
"""The number of bookings in one message at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostUse:
    """Use of the host by the group of a booking's programs, in the `ms` before the message; `allocation` is
    one of the booking's. `cpu_ms` is the time of all cores together, of the `cores` that it may use (0: of
    all). Disk and network are KiB. What is not measured is None, never 0. `spare`: so many free cores the
    node could lend to the booking in addition."""

    allocation: Name
    ms: Count
    cpu_ms: Count
    cores: Small = dataclasses.field(default=0, metadata=ADDED)
    spare: Small = dataclasses.field(default=0, metadata=ADDED)
    memory_mb: Count | None = dataclasses.field(default=None, metadata=ADDED)
    read_kb: Count | None = dataclasses.field(default=None, metadata=ADDED)
    written_kb: Count | None = dataclasses.field(default=None, metadata=ADDED)
    received_kb: Count | None = dataclasses.field(default=None, metadata=ADDED)
    sent_kb: Count | None = dataclasses.field(default=None, metadata=ADDED)
