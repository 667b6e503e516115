"""The steps that change a GPU."""

import dataclasses

from agent.ports.gpu import Place
from wire import DesiredAllocation, Mode, PauseMethod


@dataclasses.dataclass(frozen=True, slots=True)
class TakeBack:
    allocation: str


@dataclasses.dataclass(frozen=True, slots=True)
class EndProcesses:
    """`method` is that of a pause; `note` says why it differs from the notice. `only` are the ids
    of a share's programs."""

    allocation: str
    instance: int | None
    method: PauseMethod | None = None
    note: str | None = None
    only: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Destroy:
    """`allocation` is the one that needs the place, if any."""

    instance: int
    allocation: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SetMode:
    mode: Mode


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    """`allocation` is the one that needs the slice; None: one is expected."""

    allocation: str | None
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class HandOver:
    allocation: DesiredAllocation
    device: str


Step = TakeBack | EndProcesses | Destroy | SetMode | Create | HandOver
