"""What `doctor` found on a node, for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from allocation.models import NodeExamination
from allocation.rules.nodes.examination import ESSENTIAL


@dataclass(frozen=True, slots=True)
class ExaminationCheck:
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
class Examination:
    """All checks in the order in which they were made, and when."""

    at: datetime
    checks: tuple[ExaminationCheck, ...]

    def of(self, state: str) -> Sequence[ExaminationCheck]:
        """The checks that came out so."""
        return [check for check in self.checks if check.state == state]

    @property
    def failed(self) -> Sequence[ExaminationCheck]:
        """What does not work."""
        return self.of("fail")

    @property
    def warned(self) -> Sequence[ExaminationCheck]:
        """What works in part."""
        return self.of("warn")

    @property
    def unknown(self) -> Sequence[ExaminationCheck]:
        """What could not be seen."""
        return self.of("unknown")

    @property
    def fine(self) -> Sequence[ExaminationCheck]:
        """What works."""
        return self.of("ok")


def examination_of(node_id: UUID) -> Examination | None:
    """For operators: inside `operator_tx`. None for a node whose agent has told nothing yet."""
    stored = NodeExamination.objects.filter(node=node_id).first()
    if stored is None:
        return None
    return Examination(stored.at, tuple(ExaminationCheck(**check) for check in stored.checks))
