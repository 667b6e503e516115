"""What nodes have besides GPUs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """Cores in thousandths and memory in MiB of a node."""

    id: str
    cores: int
    memory: int


@dataclass(frozen=True, slots=True)
class Cache:
    """Those data sets of a node's cache folder that some request names, by name."""

    node: str
    data: tuple[str, ...]
