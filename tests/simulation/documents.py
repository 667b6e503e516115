"""The model's document of one node: see allocation/services/publish.py."""

from collections import Counter
from collections.abc import Iterable

from allocation import wire
from tests.simulation.rows import TOLD, Row, Site, Tables


def document_of(tables: Tables, site: Site, node: str) -> wire.Envelope:
    """The node's whole desired state, signed."""
    rows = [
        r for r in tables.rows.values() if r.state in TOLD and site.node_of[r.place.gpu] == node
    ]
    rows.sort(key=lambda row: (row.place.start, row.id))
    gpus = sorted((g for g in site.gpus if g.node == node), key=lambda gpu: gpu.index)
    desired = wire.Desired(
        node=node,
        epoch=tables.epoch,
        generation=tables.nodes[node].generation,
        gpus=tuple(
            _gpu(
                tables,
                site.uuids[gpu.id],
                [_allocation(tables, site, row) for row in rows if row.place.gpu == gpu.id],
            )
            for gpu in gpus
        ),
        gangs=tuple(_gangs(tables, site, node, rows)),
        suspended=(),
    )
    return wire.seal(desired, key=site.keys[node], key_version=site.key_version)


def _gpu(tables: Tables, uuid: str, allocations: list[wire.DesiredAllocation]) -> wire.DesiredGpu:
    running = [item for item in allocations if item.state == "run"] or allocations
    mode = tables.gpus[uuid].mode
    if running:
        mode = "sliced" if running[0].profile else "whole"
    return wire.DesiredGpu(
        uuid=uuid,
        mode="sliced" if mode == "sliced" else "whole",
        allocations=tuple(allocations),
    )


def _allocation(tables: Tables, site: Site, row: Row) -> wire.DesiredAllocation:
    place = row.place
    return wire.DesiredAllocation(
        id=row.id,
        booking=f"BK-{tables.bookings[row.booking].number}",
        tenant=site.slug,
        owner=site.owner,
        profile=place.profile,
        profile_id=site.profile_id(place.gpu, place.profile),
        slot=place.start,
        size=place.size,
        starts=row.starts,
        ends=row.ends,
        state="release" if row.state == "releasing" else "run",
    )


def _gangs(tables: Tables, site: Site, node: str, rows: Iterable[Row]) -> Iterable[wire.Gang]:
    here = {row.booking for row in rows}
    for name in sorted(here, key=lambda each: tables.bookings[each].number):
        booking = tables.bookings[name]
        begun = tables.of(booking, *TOLD, "ended")
        counts = Counter(site.node_of[row.place.gpu] for row in begun)
        members = tuple(wire.Member(node=n, devices=counts[n]) for n in sorted(counts))
        if len(members) > 1:
            yield wire.Gang(tenant=site.slug, booking=f"BK-{booking.number}", members=members)
