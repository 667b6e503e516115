"""What the portal and the agents on GPU nodes say to each other.

Every message is a frozen dataclass, written as canonical JSON (sorted keys, no spaces, UTF-8,
integers only; times are Unix seconds) and signed with HMAC-SHA256 over exactly those bytes. The
bytes travel next to their signature and are never written again, so both sides sign what is read.

Fields marked `_ADDED` were added to version 1. They are left out where they say nothing, and
written only for agents from `ADDED_FIELDS_SINCE` on (what belongs to pauses: `PAUSES_SINCE`, to
leases: `LEASES_SINCE`, to strangers: `ESCALATION_SINCE`), because an older agent refuses a whole
document with a field that it does not know: it goes on with the one before, and says so in its
reports. So the portal is upgraded first, then the agents.

A node's key is changed without ever being sent in clear, nor by anyone who does not hold the old
one: the document, signed with the old key, carries the new one under a pad that both sides derive
from the old key for this version and node alone (`key_wrap`, `key_unwrap`). The new key itself
comes from the master key, so knowing the old one is of no use to somebody who did not see that
document. The agent keeps both and signs with the new one from then on; the portal accepts both
until it sees that, then signs with the new one too and forgets the old one, as does the agent.

Everything an agent says has a number that only grows, per kind of message; what is not newer than
what was heard before is dropped. Agents before `LEASES_SINCE` number reports and heartbeats only.

Redis: ``desired_key`` and ``lease_key`` hold one envelope each (``Envelope.to_json``),
``wake_channel`` carries hints (`LEASE_WAKE`: only the lease is new), ``report_stream`` holds
envelopes as fields (``Envelope.to_fields``).
"""

from allocation.wire.desired import (
    Desired,
    DesiredAllocation,
    DesiredGpu,
    Escalation,
    Gang,
    Lease,
    Member,
    Notice,
    Rotation,
)
from allocation.wire.envelope import (
    MAX_BYTES,
    Envelope,
    Message,
    inventory_from_plain,
    inventory_to_plain,
    key_unwrap,
    key_wrap,
    node_key,
    open_desired,
    open_lease,
    open_report,
    seal,
)
from allocation.wire.fields import (
    CHECKS_MAX,
    LEASE_EXPIRED,
    LINE_MAX_LENGTH,
    NOT_ANSWERING,
    SLOTS,
    VERSION,
    AllocationState,
    CheckState,
    HostLimits,
    Mode,
    Name,
    PauseMethod,
    PciePath,
    Recovery,
)
from allocation.wire.reports import (
    CheckResult,
    Enforcement,
    Examination,
    FromAgent,
    HardwareError,
    Heartbeat,
    Instance,
    Inventory,
    InventoryGpu,
    Peer,
    Placement,
    Report,
    ReportedAllocation,
    ReportedGpu,
    Sample,
    Telemetry,
    UnbookedDevice,
)
from allocation.wire.strict import WireError

__all__ = [
    "ADDED_FIELDS_SINCE",
    "CHECKS_MAX",
    "ESCALATION_SINCE",
    "HOST_SINCE",
    "LEASES_SINCE",
    "LEASE_EXPIRED",
    "LEASE_REPORTED_SINCE",
    "LEASE_WAKE",
    "LINE_MAX_LENGTH",
    "MAX_BYTES",
    "MODES_SINCE",
    "NOT_ANSWERING",
    "PAUSES_SINCE",
    "REPORT_STREAM_LENGTH",
    "SAMPLES_MAX",
    "SHARES_SINCE",
    "SLOTS",
    "VERSION",
    "AllocationState",
    "CheckResult",
    "CheckState",
    "Desired",
    "DesiredAllocation",
    "DesiredGpu",
    "Enforcement",
    "Envelope",
    "Escalation",
    "Examination",
    "FromAgent",
    "Gang",
    "HardwareError",
    "Heartbeat",
    "HostLimits",
    "Instance",
    "Inventory",
    "InventoryGpu",
    "Lease",
    "Member",
    "Message",
    "Mode",
    "Name",
    "Notice",
    "PauseMethod",
    "PciePath",
    "Peer",
    "Placement",
    "Recovery",
    "Report",
    "ReportedAllocation",
    "ReportedGpu",
    "Rotation",
    "Sample",
    "Telemetry",
    "UnbookedDevice",
    "WireError",
    "desired_key",
    "inventory_from_plain",
    "inventory_to_plain",
    "key_unwrap",
    "key_wrap",
    "lease_key",
    "node_key",
    "open_desired",
    "open_lease",
    "open_report",
    "report_stream",
    "seal",
    "wake_channel",
]

ADDED_FIELDS_SINCE = (0, 2)
PAUSES_SINCE = (0, 3)
LEASES_SINCE = (0, 3)
SHARES_SINCE = (0, 3)
ESCALATION_SINCE = (0, 4)
MODES_SINCE = (0, 5)
"""From here on agents change modes that need a reset."""
HOST_SINCE = (0, 5)
"""From here on agents hand over host cores and memory."""
LEASE_REPORTED_SINCE = (0, 6)
"""From here on agents say in each heartbeat how long their lease lasts."""
LEASE_WAKE = b"lease"
REPORT_STREAM_LENGTH = 1000
SAMPLES_MAX = 256
"""Of one Telemetry: 32 GPUs, each with seven slices."""


def desired_key(node: str) -> str:
    return f"agent:{node}:desired"


def lease_key(node: str) -> str:
    return f"agent:{node}:lease"


def wake_channel(node: str) -> str:
    return f"agent:{node}:wake"


def report_stream(node: str) -> str:
    return f"agent:{node}:report"
