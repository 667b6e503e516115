"""What the use of hosts adds to the core: what nodes say of it, and evidence of bottlenecks."""

from allocation.features.host_use.services import cpu_percents, uses_keep
from allocation.points import HOST_CPU, NODE_TELEMETRY

NODE_TELEMETRY.append(uses_keep)
HOST_CPU.append(cpu_percents)
