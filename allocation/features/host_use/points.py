"""What the use of hosts adds to the core: what nodes say of it, evidence of bottlenecks, and free cores."""

from allocation.features.host_use import tasks as tasks  # noqa: PLC0414 (registers the task)
from allocation.features.host_use.raising import cores_raised
from allocation.features.host_use.services import signals_read, uses_keep
from allocation.points import HOST_SIGNALS, MORE_CORES, NODE_TELEMETRY
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS

NODE_TELEMETRY.append(uses_keep)
HOST_SIGNALS.append(signals_read)
MORE_CORES.append(cores_raised)
sentences_add({"spare_cores_leads": "Only leads choose whether their project gets free host cores."})
ACTIONS["spare_cores.set"] = "chose whether bookings of the project get free host cores"
