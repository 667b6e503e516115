"""The model's words to one node: see allocation/services/publish/publish.py and leases.py."""

from collections import Counter
from collections.abc import Iterable, Mapping

import wire
from tests.simulation.model.suspended_work import resumes_on, runs_of, suspended_on
from tests.simulation.tables.rows import STARTED_STATES, Row, Site, Tables


def lease_of(tables: Tables, site: Site, node: str, seq: int, seconds: int) -> wire.Envelope:
    """The answer to a heartbeat, signed."""
    lease = wire.Lease(node=node, epoch=tables.epoch, seq=seq, ttl=seconds)
    return wire.seal(lease, key=site.keys[node], key_version=site.key_version)


def order_document(tables: Tables, site: Site, node: str) -> wire.Envelope:
    """The node's whole desired state, signed."""
    rows = [
        r for r in tables.rows.values() if r.state in STARTED_STATES and site.node_of[r.place.gpu] == node
    ]
    rows.sort(key=lambda row: (row.place.start, row.id))
    gpus = sorted((g for g in site.gpus if g.node == node), key=lambda gpu: gpu.index)
    resumes = resumes_on(tables, site, node)
    desired = wire.Desired(
        node=node,
        epoch=tables.epoch,
        generation=tables.nodes[node].generation,
        gpus=tuple(
            _gpu(
                tables,
                site.uuids[gpu.id],
                [_allocation(tables, site, r, resumes) for r in rows if r.place.gpu == gpu.id],
            )
            for gpu in gpus
        ),
        gangs=tuple(_gangs(tables, site, rows)),
        suspended=suspended_on(tables, site, node, set(resumes.values())),
    )
    return wire.seal(desired, key=site.keys[node], key_version=site.key_version)


def _gpu(tables: Tables, uuid: str, allocations: list[wire.DesiredAllocation]) -> wire.DesiredGpu:
    running = [item for item in allocations if item.state == "run"] or allocations
    mode: wire.Mode = "sliced" if tables.gpus[uuid].mode == "sliced" else "whole"
    if running:
        mode = "sliced" if running[0].profile else "whole"
        mode = "shared" if running[0].share is not None else mode
    return wire.DesiredGpu(uuid=uuid, mode=mode, allocations=tuple(allocations))


def _allocation(tables: Tables, site: Site, row: Row, resumes: Mapping[str, str]) -> wire.DesiredAllocation:
    place, booking = row.place, tables.bookings[row.booking]
    party = site.parties[booking.requested.who]
    return wire.DesiredAllocation(
        id=row.id,
        booking=booking.label,
        tenant=party.slug,
        owner=party.owner,
        profile=place.profile,
        profile_id=site.profile_id(place.gpu, place.profile),
        slot=place.start,
        size=place.size,
        starts=row.starts,
        ends=row.ends,
        state="release" if row.state == "releasing" else "run",
        notice=_notice(tables, row),
        resumes=resumes.get(row.id),
        lease=row.leased,
        share=place.share,
    )


def _notice(tables: Tables, row: Row) -> wire.Notice | None:
    booking = tables.bookings[row.booking]
    pause = tables.pause_of(booking)
    if pause is None or pause.emptied_at is not None or row.left:
        return None
    sent = int(pause.notified_at)
    return wire.Notice(id=pause.id, told=sent, at=row.ends, method=pause.method)


def _gangs(tables: Tables, site: Site, rows: Iterable[Row]) -> Iterable[wire.Gang]:
    here = [tables.bookings[name] for name in {row.booking for row in rows if not row.left}]
    slugs = {each.id: site.parties[each.requested.who].slug for each in here}
    for booking in sorted(here, key=lambda each: (slugs[each.id], each.number, each.index)):
        begun = [row for row in tables.of(booking, *STARTED_STATES, "ended") if not row.left]
        this = runs_of(tables, booking)[-1]
        counts = Counter(site.node_of[row.place.gpu] for row in begun if row.starts == this)
        members = tuple(wire.Member(node=n, devices=counts[n]) for n in sorted(counts))
        if len(members) > 1:
            yield wire.Gang(tenant=slugs[booking.id], booking=booking.label, members=members)
