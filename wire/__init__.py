"""The messages between the portal and the agents on GPU nodes.

Every message is a frozen dataclass, written as canonical JSON (sorted keys, no spaces, UTF-8,
integers only; times are Unix seconds) and signed with HMAC-SHA256 over exactly those bytes. The
signed bytes travel with their signature and are never encoded again.

Fields marked `ADDED` were added to version 1. They are omitted at their default, and written only
for agents from `ADDED_FIELDS_SINCE` on (pauses: `PAUSES_SINCE`, leases: `LEASES_SINCE`,
enforcement: `ESCALATION_SINCE`), because an older agent refuses a document with an unknown field,
keeps the document before and reports that. So upgrade the portal first, then the agents.

A node's key is rotated without being sent in clear: the document, signed with the old key, carries
the new key under a pad that both sides derive from the old key for this version and node
(`key_wrap`, `key_unwrap`). The new key derives from the master key, so the old key alone does not
reveal it. The agent keeps both keys and signs with the new one; the portal accepts both until it
receives a message with the new key, then both sides drop the old one.

Messages of an agent have increasing numbers per kind; the portal drops a message whose number is
not newer. Agents before `LEASES_SINCE` number reports and heartbeats only.

An agent of many hosts (an engine) has a key of its own besides those of its hosts: it says by HTTP
which hosts there are (`EngineHosts`), and the answer (`EngineAnswer`), which is signed as well, has the
keys of those that are its own, each hidden under the engine's key.

Redis: ``desired_key`` and ``lease_key`` hold one envelope each (``Envelope.to_json``),
``wake_channel`` carries hints (`LEASE_WAKE`: only the lease is new), ``report_stream`` holds
envelopes as fields (``Envelope.to_fields``).
"""

from wire.check_words import CHECK_TEXTS
from wire.data import DATA_PATTERN, DATA_SETS_MAX, CachedData, DataName
from wire.desired import (
    Desired,
    DesiredAllocation,
    DesiredGpu,
    DesiredSlice,
    Escalation,
    Gang,
    Lease,
    Member,
    Notice,
    Rotation,
)
from wire.engines import (
    HOST_INVENTORY_MAX,
    HOSTS_MAX,
    EngineAnswer,
    EngineHosts,
    HostKey,
    engine_account,
    is_name,
    node_name,
    rack_name,
)
from wire.envelope import (
    MAX_BYTES,
    Envelope,
    Message,
    inventory_from_plain,
    inventory_to_plain,
    key_unwrap,
    key_wrap,
    node_key,
    open_desired,
    open_engine_answer,
    open_engine_hosts,
    open_lease,
    open_report,
    seal,
)
from wire.fields import (
    CHECK_FACTS_MAX,
    CHECKS_MAX,
    LEASE_EXPIRED,
    LINE_MAX_LENGTH,
    NOT_ANSWERING,
    PROGRESS_LENGTH,
    PROGRESS_MAX,
    SLOTS,
    VERSION,
    AllocationState,
    CheckState,
    Engine,
    HostLimits,
    Mode,
    Name,
    PauseMethod,
    PciePath,
    Recovery,
    StepName,
)
from wire.host_use import HOST_USES_MAX, HostUse
from wire.notebooks import (
    NOTEBOOK_PROGRAMS_MAX,
    NOTEBOOKS_MAX,
    DesiredNotebook,
    Notebooks,
    NotebookState,
    ReportedNotebook,
)
from wire.reports import (
    HOST_CORE,
    CheckFact,
    CheckResult,
    Enforcement,
    Examination,
    FromAgent,
    HardwareError,
    Heartbeat,
    Instance,
    Inventory,
    InventoryGpu,
    NodeStorage,
    Peer,
    Placement,
    PreparedStep,
    ProgressLine,
    Report,
    ReportedAllocation,
    ReportedGpu,
    Sample,
    Telemetry,
    UnbookedDevice,
)
from wire.scripts import (
    NOT_IN_TEXT,
    SCRIPT_LOG_LENGTH,
    SCRIPT_MAX_BYTES,
    DesiredScript,
    ReportedScript,
)
from wire.strict import WireError

__all__ = [
    "ADDED_FIELDS_SINCE",
    "CHECKS_MAX",
    "CHECK_FACTS_MAX",
    "CHECK_TEXTS",
    "DATA_PATTERN",
    "DATA_SETS_MAX",
    "ESCALATION_SINCE",
    "HOSTS_MAX",
    "HOST_CORE",
    "HOST_INVENTORY_MAX",
    "HOST_SINCE",
    "HOST_USES_MAX",
    "LEASES_SINCE",
    "LEASE_EXPIRED",
    "LEASE_REPORTED_SINCE",
    "LEASE_WAKE",
    "LINE_MAX_LENGTH",
    "MAX_BYTES",
    "MODES_SINCE",
    "NOTEBOOKS_MAX",
    "NOTEBOOK_PROGRAMS_MAX",
    "NOT_ANSWERING",
    "NOT_IN_TEXT",
    "PAUSES_SINCE",
    "PREPARES_SINCE",
    "PROGRESS_LENGTH",
    "PROGRESS_MAX",
    "REPORT_STREAM_LENGTH",
    "SAMPLES_MAX",
    "SCRIPTS_SINCE",
    "SCRIPT_LOG_LENGTH",
    "SCRIPT_MAX_BYTES",
    "SHARES_SINCE",
    "SLOTS",
    "VERSION",
    "WITHOUT_SHARES",
    "AllocationState",
    "CachedData",
    "CheckFact",
    "CheckResult",
    "CheckState",
    "DataName",
    "Desired",
    "DesiredAllocation",
    "DesiredGpu",
    "DesiredNotebook",
    "DesiredScript",
    "DesiredSlice",
    "Enforcement",
    "Engine",
    "EngineAnswer",
    "EngineHosts",
    "Envelope",
    "Escalation",
    "Examination",
    "FromAgent",
    "Gang",
    "HardwareError",
    "Heartbeat",
    "HostKey",
    "HostLimits",
    "HostUse",
    "Instance",
    "Inventory",
    "InventoryGpu",
    "Lease",
    "Member",
    "Message",
    "Mode",
    "Name",
    "NodeStorage",
    "NotebookState",
    "Notebooks",
    "Notice",
    "PauseMethod",
    "PciePath",
    "Peer",
    "Placement",
    "PreparedStep",
    "ProgressLine",
    "Recovery",
    "Report",
    "ReportedAllocation",
    "ReportedGpu",
    "ReportedNotebook",
    "ReportedScript",
    "Rotation",
    "Sample",
    "StepName",
    "Telemetry",
    "UnbookedDevice",
    "WireError",
    "desired_key",
    "engine_account",
    "inventory_from_plain",
    "inventory_to_plain",
    "is_name",
    "key_unwrap",
    "key_wrap",
    "lease_key",
    "node_key",
    "node_name",
    "open_desired",
    "open_engine_answer",
    "open_engine_hosts",
    "open_lease",
    "open_report",
    "rack_name",
    "report_stream",
    "seal",
    "wake_channel",
]

ADDED_FIELDS_SINCE = (0, 2)
PAUSES_SINCE = (0, 3)
LEASES_SINCE = (0, 3)
SHARES_SINCE = (0, 3)
WITHOUT_SHARES = ("amdgpu", "device files")
"""How the drivers of devices begin that can't be shared."""
ESCALATION_SINCE = (0, 4)
MODES_SINCE = (0, 5)
"""Agents since this version change modes that need a reset."""
HOST_SINCE = (0, 5)
"""Agents since this version hand over host cores and memory."""
LEASE_REPORTED_SINCE = (0, 6)
"""Agents since this version report the remaining lease in each heartbeat."""
PREPARES_SINCE = (0, 7)
"""Agents since this version make slices ahead of allocations."""
SCRIPTS_SINCE = (0, 8)
"""Agents since this version run scripts of bookings, where their engine is Slurm."""
LEASE_WAKE = b"lease"
REPORT_STREAM_LENGTH = 1000
SAMPLES_MAX = 256
"""The number of samples in one Telemetry at most: 32 GPUs with seven slices each."""


def desired_key(node: str) -> str:
    return f"agent:{node}:desired"


def lease_key(node: str) -> str:
    return f"agent:{node}:lease"


def wake_channel(node: str) -> str:
    return f"agent:{node}:wake"


def report_stream(node: str) -> str:
    return f"agent:{node}:report"
