"""Thin tables with constraints: hardware, bookings, decisions, telemetry."""

from allocation.models.bookings import Allocation, Booking, BookingEvent, Occupancy
from allocation.models.decisions import Decision, PolicyVersion, SolverState
from allocation.models.hardware import EnrolmentToken, Gpu, GpuModel, MigPlacement, Node, Rack
from allocation.models.telemetry import GpuSample, GpuUse, Tally

__all__ = [
    "Allocation",
    "Booking",
    "BookingEvent",
    "Decision",
    "EnrolmentToken",
    "Gpu",
    "GpuModel",
    "GpuSample",
    "GpuUse",
    "MigPlacement",
    "Node",
    "Occupancy",
    "PolicyVersion",
    "Rack",
    "SolverState",
    "Tally",
]
