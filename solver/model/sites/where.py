"""Where a booking may run: the zones and the storage of nodes."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from solver.model.omitted import OMITTED_WHEN_EMPTY


class Site(Protocol):
    """What is known of a GPU's node: its zone ("" for none), storage, and local space in GB."""

    @property
    def zone(self) -> str: ...
    @property
    def storage(self) -> str: ...
    @property
    def scratch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Where:
    """Nodes of these `zones` (empty: of any, or of none), of none of `not_zones`, with this `storage`
    ("local" or "shared"; empty: any) and at least `scratch` GB of local space."""

    zones: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    not_zones: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    storage: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    scratch: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)

    def allows(self, site: Site) -> bool:
        """Whether a GPU of such a node may be used."""
        if (self.zones and site.zone not in self.zones) or site.zone in self.not_zones:
            return False
        return self.storage in ("", site.storage) and site.scratch >= self.scratch

    def only(self, zone: str) -> "Where | None":
        """The same in one zone ("": on nodes without one); None: not there."""
        if (self.zones and zone not in self.zones) or zone in self.not_zones:
            return None
        return replace(self, zones=(zone,), not_zones=())


ANYWHERE = Where()
