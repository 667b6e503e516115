"""Tables and their constraints: hardware, bookings, decisions, telemetry."""

from allocation.models.allocations import Allocation, Occupancy
from allocation.models.arrays import BookingArray
from allocation.models.booking_events import BookingEvent, MovedStart
from allocation.models.bookings import (
    Booking,
    PlannedStrength,
    WaitMode,
)
from allocation.models.changes import BookingChange
from allocation.models.compaction import CompactionOrder
from allocation.models.decisions import (
    Decision,
    DecisionPiece,
    DecisionReplay,
    MachineClock,
    PolicyVersion,
    QueuePlace,
    SolverState,
)
from allocation.models.dependencies import Dependency
from allocation.models.fleet.engines import EngineAgent, EngineHost
from allocation.models.fleet.enrolment import EnrolmentToken
from allocation.models.fleet.hardware import (
    Gpu,
    GpuModel,
    MigPlacement,
    Node,
    NodeExamination,
    NodeInventory,
)
from allocation.models.fleet.maintenance import GpuEvent, Maintenance
from allocation.models.fleet.operations import Backup, PortalMode
from allocation.models.fleet.telemetry import EventCounter, GpuSample, GpuUse, GpuUseDay
from allocation.models.fleet.zones import Rack, Zone
from allocation.models.governance.approvals import Approval, ApprovalAct, ApprovalRule
from allocation.models.governance.counters import CounterOffer
from allocation.models.governance.overrides import Override
from allocation.models.governance.tier_versions import TierVersion
from allocation.models.labels import BookingLabel
from allocation.models.money.charges import ChargeSum
from allocation.models.money.files import FileFormat
from allocation.models.money.variances import SpendVariance
from allocation.models.pauses import Pause, PauseCause, PauseRelation
from allocation.models.policies import PolicyActivation, PolicyApproval
from allocation.models.series import Series, WorkSpeed
from allocation.models.stops import Stop

__all__ = [
    "Allocation",
    "Approval",
    "ApprovalAct",
    "ApprovalRule",
    "Backup",
    "Booking",
    "BookingArray",
    "BookingChange",
    "BookingEvent",
    "BookingLabel",
    "ChargeSum",
    "CompactionOrder",
    "CounterOffer",
    "Decision",
    "DecisionPiece",
    "DecisionReplay",
    "Dependency",
    "EngineAgent",
    "EngineHost",
    "EnrolmentToken",
    "EventCounter",
    "FileFormat",
    "Gpu",
    "GpuEvent",
    "GpuModel",
    "GpuSample",
    "GpuUse",
    "GpuUseDay",
    "MachineClock",
    "Maintenance",
    "MigPlacement",
    "MovedStart",
    "Node",
    "NodeExamination",
    "NodeInventory",
    "Occupancy",
    "Override",
    "Pause",
    "PauseCause",
    "PauseRelation",
    "PlannedStrength",
    "PolicyActivation",
    "PolicyApproval",
    "PolicyVersion",
    "PortalMode",
    "QueuePlace",
    "Rack",
    "Series",
    "SolverState",
    "SpendVariance",
    "Stop",
    "TierVersion",
    "WaitMode",
    "WorkSpeed",
    "Zone",
]
