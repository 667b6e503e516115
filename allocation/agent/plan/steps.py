"""What can be done to a GPU, one thing at a time."""

import dataclasses

from allocation.agent.ports.gpu import Place
from allocation.wire import DesiredAllocation, Mode, PauseMethod


@dataclasses.dataclass(frozen=True, slots=True)
class TakeBack:
    allocation: str


@dataclasses.dataclass(frozen=True, slots=True)
class EndProcesses:
    """`method` is that of a pause; `note` says why it is not the one that was asked for. `only`
    are the ids of a share's programs."""

    allocation: str
    instance: int | None
    method: PauseMethod | None = None
    note: str | None = None
    only: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Destroy:
    """`allocation` is the one it is done for, if any."""

    instance: int
    allocation: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SetMode:
    mode: Mode


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    allocation: str
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class HandOver:
    allocation: DesiredAllocation
    device: str


Step = TakeBack | EndProcesses | Destroy | SetMode | Create | HandOver
