"""The people of a simulated node: whoever is handed a device soon runs a program on it."""

from allocation.agent.simulated.hardware import Hardware
from allocation.wire import DesiredAllocation

_FIRST_LOOK_S = 2


class SimulatedUsers:
    """See handover.Owner. Programs end when they are asked to, as those of most people do."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def given(self, allocation: DesiredAllocation, device: str) -> None:
        self._hardware.process_start(
            device,
            label=allocation.id,
            delay_s=_FIRST_LOOK_S,
            load=f"{allocation.tenant}.{allocation.booking}",
        )

    def taken(self, allocation: str) -> None:
        self._hardware.process_forget(allocation)
