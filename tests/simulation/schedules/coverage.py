"""What really happened in a schedule, counted: what never happens is not proven."""

from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.model.maintenance import is_away
from tests.simulation.nodes.node import CRASH_POINTS
from tests.simulation.tables.people import BORROWER, FIRST_CLASS
from tests.simulation.tables.rows import Tables

if TYPE_CHECKING:
    from tests.simulation.schedules.schedule import Schedule

KINDS = (
    "pauses notified",
    "pauses of a tenant that borrows",
    "pauses inside a tenant",
    "pauses of gangs",
    "pauses by suspend",
    "pauses by signal",
    "pauses by stop",
    "pauses answered early",
    "pauses postponed",
    "pauses taken back",
    "pauses of broken runs",
    "pauses proven empty",
    "pauses resumed",
    "pauses that were never resumed",
    "answers withheld: left",
    "answers withheld: needed",
    "answers withheld: changed",
    "answers withheld: room_freed",
    "programs frozen",
    "programs woken",
    "frozen programs that died",
    "moves ordered",
    "moves carried out",
    "words that were overtaken",
    "power lost in the dark",
    "work of the second class begun",
    "gangs on one node begun",
    "planned places moved",
    "bookings held on lease",
    "bookings begun anew for silence",
    "leases that ran out",
    "shares",
    "shares side by side",
    "pinned bookings begun",
    "work that left for maintenance",
    "nodes silent",
    "nodes silent for long",
    "calls that hang",
    "GPUs that hang",
    "errors of hardware",
    "GPUs put back by an operator",
    "unbooked programs",
    "programs on the other lists",
    "programs that are on no list",
    "services stopped for a change",
    "memory that stayed in use",
    "agents stopped",
    "outages slept through",
    "freezes of decisions",
    "weaker changes",
    "changes made",
    "changes kept",
    "changes withdrawn",
    "changes that wait",
    "windows waited for and had",
    "windows missed",
    "offers",
    "offers accepted",
    "offers declined",
    "offers answered late",
    "elements of arrays",
    "slices made by hand",
    *(f"died {point}" for point in CRASH_POINTS),
)


def happened(schedule: "Schedule") -> Counter[str]:
    """By kind; what a backup took back is not counted."""
    tables = schedule.portal.tables
    found = Counter(schedule.happened)
    for node in schedule.world.nodes:
        found += node.happened
    found.update(kind for kind, _ in schedule.world.marks)
    withheld = schedule.portal.withheld.items()
    found.update({f"answers withheld: {why}": count for why, count in withheld})
    found["bookings held on lease"] = len({r.booking for r in tables.rows.values() if r.leased})
    found["bookings begun anew for silence"] = sum(b.replaced for b in tables.bookings.values())
    begun = [tables.bookings[r.booking] for r in tables.rows.values() if r.occupied is not None]
    found["work that left for maintenance"] = sum(
        row.broken and is_away(row, schedule.portal.site, [each])
        for row in tables.rows.values()
        for each in tables.maintenance.values()
        if each.drain_by <= row.ends < each.ends
    )
    found["moves carried out"] = schedule.portal.tables.moved
    found["work of the second class begun"] = sum(
        schedule.portal.site.class_of[r.place.gpu] != FIRST_CLASS
        for r in tables.rows.values()
        if r.occupied is not None
    )
    found["gangs on one node begun"] = sum(
        each.requested.together == "node" and each.requested.count > 1 for each in begun
    )
    found["pinned bookings begun"] = sum(bool(each.requested.pin) for each in begun)
    windows = Counter((r.booking, r.starts, r.ends) for r in tables.rows.values())
    found["planned places moved"] = sum(
        windows[r.booking, r.starts, r.ends] > tables.bookings[r.booking].requested.count
        for r in tables.rows.values()
        if r.state == "superseded" and tables.bookings[r.booking].revision == 1
    )
    found += tables.outcomes
    found["elements of arrays"] = sum(each.index > 1 for each in tables.bookings.values())
    _count_shares(tables, found)
    _count_pauses(tables, found)
    return found


def _count_shares(tables: Tables, found: Counter[str]) -> None:
    began = [r for r in tables.rows.values() if r.place.share and r.occupied is not None]
    found["shares"] = len(began)
    found["shares side by side"] = sum(
        one.place.gpu == other.place.gpu and one.meets(other)
        for i, one in enumerate(began)
        for other in began[i + 1 :]
    )


def _count_pauses(tables: Tables, found: Counter[str]) -> None:
    for pause in tables.pauses.values():
        booking, other = tables.bookings[pause.booking], tables.bookings[pause.beneficiary]
        is_own = BORROWER not in (booking.requested.who, other.requested.who)
        facts = {
            "pauses notified": True,
            "pauses of a tenant that borrows": not is_own,
            "pauses inside a tenant": is_own,
            "pauses of gangs": booking.requested.count > 1,
            f"pauses by {booking.tier.method}": True,
            "pauses answered early": pause.acknowledged_at is not None,
            "pauses postponed": pause.more_times_used > 0,
            "pauses taken back": pause.withdrawn,
            "pauses of broken runs": (booking.lost_at or 0) >= pause.notified_at,
            "pauses proven empty": pause.emptied_at is not None,
            "pauses resumed": pause.resumed_at is not None,
            "pauses that were never resumed": pause.ended_at is not None,
        }
        found.update(kind for kind, is_so in facts.items() if is_so)
