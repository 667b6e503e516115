"""The parts that make up one node's agent."""

import dataclasses
from collections.abc import Callable

from allocation import wire
from allocation.agent.owner.booking_files import Bookings
from allocation.agent.owner.mps_units import MpsUnits
from allocation.agent.owner.shares import Place
from allocation.agent.owner.slices import Slices
from allocation.agent.ports.gpu import GpuPort, WatchPort
from allocation.agent.ports.handover import Handover
from allocation.agent.ports.programs import Programs, account_same
from allocation.agent.ports.suspender import Suspender
from allocation.agent.report.metrics import Board
from allocation.agent.state.documents import Keys
from allocation.agent.state.store import Store


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`inventory` reads it anew; `place` is what programs are told of it. Without `programs` none
    is warned or suspended. `pause_signal` is the number of the signal that tells of a notice.
    `one_account`: a shared GPU is for one account at a time. Without a `watch` the driver can't be
    asked for errors, and none is told. On the `board` stands what a Prometheus here may read.
    `alive` is called whenever the loop comes round, every 5 s at least. `account_of` gives the
    local account of a member of the portal. Unless `may_end` no program is ended because nobody
    gave it a device, whatever the portal says. `mps` keeps the MPS daemons of shared GPUs, where
    systemd does that for the agent. `slices` keep programs to their booking's devices; `room_mb` is
    the memory that limits of its own leave to a booking, in MiB."""

    keys: Keys
    port: GpuPort
    store: Store
    handover: Handover
    bookings: Bookings
    inventory: Callable[[], wire.Inventory]
    watch: WatchPort | None = None
    board: Board | None = None
    place: Place | None = None
    programs: Programs | None = None
    suspender: Suspender | None = None
    pause_signal: int | None = None
    one_account: bool = True
    alive: Callable[[], None] = lambda: None
    account_of: Callable[[str], str | None] = account_same
    may_end: Callable[[], bool] = lambda: True
    mps: MpsUnits | None = None
    slices: Slices | None = None
    room_mb: Callable[[str], int | None] = lambda booking: None
