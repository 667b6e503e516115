"""The driver branches that can be simulated, with what each of them knows.

Numbers and symbols are those of NVIDIA's header files: `nvml.h` of CUDA 12.2 (535), 12.4 (550),
12.8 (570), 13.0 (580) and 13.3 (600). A binding that is newer than its driver has constants above
these numbers, and functions that such a driver lacks.
"""

import dataclasses

_SINCE_550 = frozenset({"nvmlDeviceGetGpuFabricInfoV"})
_SINCE_570 = frozenset({"nvmlDeviceGetTemperatureV"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One branch. An index of a link or profile from its number on is an invalid argument, as is a
    field from `fields` on; `lacks` are symbols that its library does not have. `scrambled`: it
    fills the list of processes with records of another size, so most process ids are wrong."""

    version: str
    links: int = 18
    gpu_profiles: int
    compute_profiles: int = 8
    fields: int
    lacks: frozenset[str] = frozenset()
    scrambled: bool = False


DRIVERS = {
    "535": Driver(version="535.183.06", gpu_profiles=0xA, fields=197, lacks=_SINCE_550 | _SINCE_570),
    "535.54": Driver(
        version="535.54.03",
        gpu_profiles=0xA,
        fields=197,
        lacks=_SINCE_550 | _SINCE_570,
        scrambled=True,
    ),
    "550": Driver(version="550.163.01", gpu_profiles=0xA, fields=200, lacks=_SINCE_570),
    "570": Driver(version="570.195.03", gpu_profiles=0xD, fields=269),
    "580": Driver(version="580.95.05", gpu_profiles=0x11, fields=274),
    "600": Driver(version="600.41.02", links=36, gpu_profiles=0x12, compute_profiles=9, fields=303),
}
DEFAULT = "580"
"""The branch that is simulated when none is named."""


def driver_named(branch: str) -> Driver:
    """Returns the branch of that number. Raises ValueError."""
    try:
        return DRIVERS[branch]
    except KeyError:
        raise ValueError(f"{branch!r} is no simulated driver; there are {sorted(DRIVERS)}") from None
