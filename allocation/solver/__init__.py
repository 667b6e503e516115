"""The solver's public face: data in, decisions with reasons out; no Django, no clock."""

from allocation.solver.codec import decode, digest, encode
from allocation.solver.cycle import solve
from allocation.solver.geometry import units_of
from allocation.solver.plan import Alternative, Assign, Extend, Plan, Reason, Refuse, Waiting
from allocation.solver.quota import Quota
from allocation.solver.quote import Availability, Option, Question, Quote, quote
from allocation.solver.types import (
    SLOTS_PER_GPU,
    UNITS_PER_GPU,
    Ask,
    Extension,
    Gpu,
    Held,
    Limit,
    Model,
    Place,
    Placement,
    Policy,
    Promise,
    Request,
    Snapshot,
)

__all__ = [
    "SLOTS_PER_GPU",
    "UNITS_PER_GPU",
    "Alternative",
    "Ask",
    "Assign",
    "Availability",
    "Extend",
    "Extension",
    "Gpu",
    "Held",
    "Limit",
    "Model",
    "Option",
    "Place",
    "Placement",
    "Plan",
    "Policy",
    "Promise",
    "Question",
    "Quota",
    "Quote",
    "Reason",
    "Refuse",
    "Request",
    "Snapshot",
    "Waiting",
    "decode",
    "digest",
    "encode",
    "quote",
    "solve",
    "units_of",
]
