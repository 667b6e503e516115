"""What `doctor` found on a node, for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocation.models import NodeExamination
from allocation.rules.nodes.examination import ESSENTIAL


@dataclass(frozen=True, slots=True)
class CheckFound:
    """One check. While one fails that is `essential`, new work waits for an operator's approval."""

    name: str
    state: str
    seen: str
    do: str

    @property
    def essential(self) -> bool:
        """Whether the node can't be served while it fails."""
        return self.name in ESSENTIAL


@dataclass(frozen=True, slots=True)
class Examined:
    """All checks in the order in which they were made, and when."""

    at: datetime
    checks: tuple[CheckFound, ...]

    def of(self, state: str) -> Sequence[CheckFound]:
        """The checks that came out so."""
        return [check for check in self.checks if check.state == state]

    @property
    def failed(self) -> Sequence[CheckFound]:
        """What does not work."""
        return self.of("fail")

    @property
    def warned(self) -> Sequence[CheckFound]:
        """What works in part."""
        return self.of("warn")

    @property
    def unknown(self) -> Sequence[CheckFound]:
        """What could not be seen."""
        return self.of("unknown")

    @property
    def fine(self) -> Sequence[CheckFound]:
        """What works."""
        return self.of("ok")


def examined_of(node_id: UUID) -> Examined | None:
    """For operators: inside `operator_tx`. None for a node whose agent has told nothing yet."""
    stored = NodeExamination.objects.filter(node=node_id).first()
    if stored is None:
        return None
    return Examined(stored.at, tuple(CheckFound(**check) for check in stored.checks))
