"""The programs that hold an allocation's device.

Programs are assigned to shares by their environment, else by their account. A program can evade
this: it detects, it does not prevent.
"""

from collections.abc import Callable, Iterable

from agent.plan.targets import place_of
from agent.ports.gpu import GpuPort
from agent.ports.handover import booking_full_name
from agent.ports.programs import Programs
from wire import DesiredAllocation

AccountOf = Callable[[str], str | None]
"""The local account of a member of the portal."""


def device_holders(port: GpuPort, gpu: str, allocation: DesiredAllocation) -> tuple[int, ...]:
    """Returns the programs on a whole GPU or a slice. Raises GpuError."""
    place = place_of(allocation)
    if place is None:
        return port.pids(gpu, None)
    there = (i.id for i in port.truth(gpu).instances if i.place == place)
    instance = next(there, None)
    return () if instance is None else port.pids(gpu, instance)


def share_holders(
    port: GpuPort,
    programs: Programs | None,
    gpu: str,
    shares: Iterable[DesiredAllocation],
    account_of: AccountOf = lambda member: member,
) -> dict[str, tuple[int, ...] | None]:
    """Returns the programs on a GPU by share; None when unknown. Raises GpuError.

    A program that names no booking is of its account's share, if that has only one here. While its
    account is not known yet, it may be anybody's.
    """
    shares = tuple(shares)
    if not shares:
        return {}
    if programs is None:
        return dict.fromkeys((each.id for each in shares), None)
    found: dict[str, list[int]] = {each.id: [] for each in shares}
    late = False
    for pid in port.pids(gpu, None):
        owner_of = programs.owner_of(pid)
        late = late or (owner_of.late and not owner_of.names)
        mine = [s for s in shares if {booking_full_name(s), s.id} & owner_of.names]
        if not owner_of.names:
            known = owner_of.account is not None
            own = [s for s in shares if known and account_of(s.owner) == owner_of.account]
            mine = own if len({booking_full_name(s) for s in own}) == 1 else []
        for each in mine:
            found[each.id].append(pid)
    return {name: None if late and not pids else tuple(pids) for name, pids in found.items()}
