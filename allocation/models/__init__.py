"""Thin tables with constraints: hardware, bookings, decisions, telemetry."""

from allocation.models.bookings import Allocation, Booking, BookingEvent, Occupancy
from allocation.models.compaction import CompactionOrder
from allocation.models.decisions import Decision, MachineClock, PolicyVersion, SolverState
from allocation.models.feeds import CalendarFeed
from allocation.models.hardware import (
    EnrolmentToken,
    Gpu,
    GpuModel,
    MigPlacement,
    Node,
    NodeExamination,
    NodeInventory,
    Rack,
)
from allocation.models.maintenance import Blackout, GpuEvent
from allocation.models.operations import Backup, PortalMode
from allocation.models.pauses import Own, Pause, PauseCause
from allocation.models.series import Series, WorkSpeed
from allocation.models.telemetry import GpuSample, GpuUse, Tally

__all__ = [
    "Allocation",
    "Backup",
    "Blackout",
    "Booking",
    "BookingEvent",
    "CalendarFeed",
    "CompactionOrder",
    "Decision",
    "EnrolmentToken",
    "Gpu",
    "GpuEvent",
    "GpuModel",
    "GpuSample",
    "GpuUse",
    "MachineClock",
    "MigPlacement",
    "Node",
    "NodeExamination",
    "NodeInventory",
    "Occupancy",
    "Own",
    "Pause",
    "PauseCause",
    "PolicyVersion",
    "PortalMode",
    "Rack",
    "Series",
    "SolverState",
    "Tally",
    "WorkSpeed",
]
