"""What is the same for all GPUs that another scheduler gives on the portal's behalf.

A GPU of the portal's is a place: the scheduler chooses the device. Places are planned whole.
"""

from collections.abc import Collection, Mapping

from agent.ports.gpu import FoundError, GpuError, Place, Reading
from wire import Mode


class PlacesPort:
    """The part of agent.ports.gpu.GpuPort that does not depend on the scheduler."""

    scheduler: str
    """Its name."""

    def set_mode(self, gpu: str, mode: Mode) -> None:
        if mode != "whole":
            raise self._unsupported()

    def create(self, gpu: str, place: Place) -> None:
        raise self._unsupported()

    def destroy(self, gpu: str, instance: int) -> None:
        raise self._unsupported()

    def _unsupported(self) -> GpuError:
        return GpuError("unsupported", f"{self.scheduler} hands out whole GPUs here")

    def close(self) -> None:
        """Has nothing open."""


class PlacesWatch:
    """The part of agent.ports.gpu.WatchPort that does not depend on the scheduler."""

    def errors(self) -> tuple[FoundError, ...]:
        return ()

    def close(self) -> None:
        """Has nothing open."""


def reading_of(gpu: str, number: int) -> tuple[Reading, ...]:
    """Returns what is known of a place with so many programs. Nothing is measured: the scheduler does
    not say it, and the agent is not on the node."""
    return (Reading(gpu, None, None, None, None, None, None, number),)


class NoDeviceNodes:
    """See agent.owner.cdi.DeviceNodes: the devices are on other hosts."""

    def common(self) -> tuple[str, ...]:
        return ()

    def of(self, device: str) -> tuple[str, ...]:
        return ()


def partners_refusal(others: Collection[int], leaving: Collection[int], taken: Collection[int]) -> str | None:
    """Says why a booking waits for its other places: it gets all of them at once."""
    if set(others) & set(leaving):
        return "another booking has not left all of its devices"
    count = len(set(others) & set(taken))
    return f"work of others takes {count} of its devices" if count else None


def model_of(kind: str, models: Mapping[str, tuple[str, int]]) -> tuple[str, int] | None:
    """Returns name and memory in MiB of a type of GPU, None where they were not given."""
    return models.get(kind) or models.get("*")
