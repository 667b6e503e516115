"""Random sites for the properties: small, crowded, and of every kind the solver knows."""

from dataclasses import replace

from hypothesis import strategies as st

from solver import (
    Ask,
    Extension,
    Gpu,
    Host,
    Limit,
    Place,
    Plan,
    PlannedStart,
    Request,
    Snapshot,
)
from solver.model.inputs import Held, Mode
from tests.solver.builders import HOUR, NOON, a_limit, a_request, a_snapshot, an_ask, gpus
from tests.solver.world import level_of, moved

KINDS = (("h100", "h100-80gb"), ("a100", "a100-40gb"), ("l40s", "l40s"))
PROFILES = {
    "h100": ("1g.10gb", "1g.10gb+me", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "a100": ("1g.5gb", "1g.5gb+me", "2g.10gb", "3g.20gb"),
    "l40s": ("1g.10gb",),
}
MODES: tuple[Mode | None, ...] = (None, None, None, "whole", "sliced")
STANDS: tuple[Mode | None, ...] = (None, "whole", "sliced", "sliced")
TENANTS = ("lab", "firm")
PROJECTS = ("p", "q")
minutes = st.integers(0, 40).map(lambda step: step * 371)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Gpu, ...]:
    """One to four nodes of one to four GPUs, some fixed in mode, some out of service."""
    found: tuple[Gpu, ...] = ()
    for number in range(draw(st.integers(1, 4))):
        gpu_class, model = draw(st.sampled_from(KINDS))
        node = gpus(
            draw(st.integers(1, 4)),
            gpu_class,
            model,
            node=f"n{number}",
            rack=f"r{number // 2}",
            domains=draw(st.sampled_from((None, 1, 2))),
        )
        for gpu in node:
            mode = draw(st.sampled_from(MODES))
            usable = draw(st.integers(0, 9)) > 0
            stands = draw(st.sampled_from(STANDS)) if gpu_class == "a100" else None
            found += (replace(gpu, mode=mode, usable=usable, stands=stands),)
    return found


@st.composite
def requests(draw: st.DrawFn, number: int) -> Request:
    """A booking of any kind, without a planned start."""
    classes = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True))
    profile = draw(st.sampled_from((None, None, *PROFILES[classes[0][0]])))
    fixed = draw(st.integers(0, 3)) == 0
    duration = draw(st.integers(1, 12)) * 1_777
    earliest = draw(minutes)
    spare = draw(st.none() | st.integers(0, 20).map(lambda step: step * 999))
    tenant = draw(st.sampled_from(TENANTS))
    made = a_request(
        f"b{number}",
        an_ask(
            draw(st.integers(1, 4)),
            *(name for name, _ in classes),
            profile=profile,
            together=draw(st.sampled_from(("gpu", "domain", "node", "rack", "any"))),
            required=draw(st.booleans()),
        ),
        earliest=earliest if fixed or draw(st.booleans()) else 0,
        fixed=fixed,
        priority=draw(st.sampled_from((10, 50, 90))),
        submitted=draw(st.integers(0, 3)),
        tenant=tenant,
        project=f"{tenant}-{draw(st.sampled_from(PROJECTS))}",
        tier=draw(st.sampled_from(("standard", "flex", "spot"))),
    )
    latest = None if fixed or spare is None else made.earliest + duration + spare
    ask = draw(host_needs(made.ask))
    whose = draw(st.sampled_from(("ann", "bob")))
    return replace(made, duration=duration, latest=latest, ask=ask, owner=whose)


@st.composite
def host_needs(draw: st.DrawFn, ask: Ask) -> Ask:
    """Now and then the ask is for a share, for host cores and memory, or for any of its classes."""
    if ask.profile is None and draw(st.integers(0, 3)) == 0:
        ask = replace(ask, count=1, share=draw(st.sampled_from((100, 333, 500, 900))))
    if draw(st.integers(0, 2)) == 0:
        cores, memory = draw(st.sampled_from((0, 4_000, 20_000))), draw(st.integers(0, 90)) * 512
        ask = replace(ask, cores=cores, memory=memory)
    return replace(ask, any_class=draw(st.booleans()))


@st.composite
def held_rows(draw: st.DrawFn, fleet: tuple[Gpu, ...]) -> tuple[Held, ...]:
    """Whole GPUs that run something or are booked, at most one row each."""
    found = []
    for gpu in fleet:
        if draw(st.booleans()) and gpu.mode != "sliced":
            starts = draw(st.sampled_from((-HOUR, 0, 1_000)))
            ends = starts + draw(st.integers(1, 10)) * 1_234
            tenant = draw(st.sampled_from(TENANTS))
            part = draw(st.sampled_from((None, None, 250, 700)))
            place = Place(gpu.id, None, 0, 8, part)
            if gpu.stands == "sliced" and gpu.mode is None and draw(st.booleans()):
                place = Place(gpu.id, "3g.20gb", draw(st.sampled_from((0, 4))), 4)
            row = Held(
                id=f"h-{gpu.id}",
                booking=f"k-{gpu.id}",
                tenant=tenant,
                project=f"{tenant}-p",
                place=place,
                starts=NOON + starts,
                ends=NOON + ends,
                started=starts <= 0,
                tier=draw(st.sampled_from(("standard", "flex", "spot"))),
                cores=draw(st.sampled_from((0, 0, 9_000))),
                owner=draw(st.sampled_from(("ann", "bob"))),
                level="any" if starts > 0 and draw(st.booleans()) else None,
            )
            found.append(row)
    return tuple(found)


@st.composite
def limits(draw: st.DrawFn) -> tuple[Limit, ...]:
    """Some owners have quota, one may have nothing at all; no tenant splits more than it has."""
    some = st.sampled_from((0, 0.5, 1, 2, 4))
    found = []
    for tenant in TENANTS:
        for name, _ in KINDS:
            sure = draw(some)
            is_there = draw(st.integers(0, 2)) == 0
            found += [draw(a_node(tenant, sure, name, None))] if is_there else []
            for project in PROJECTS:
                if draw(st.integers(0, 2)) == 0:
                    own = draw(st.sampled_from((0, sure / 2)))
                    found.append(draw(a_node(f"{tenant}-{project}", own, name, tenant)))
    return tuple(found)


@st.composite
def a_node(draw: st.DrawFn, owner: str, guaranteed: float, gpu_class: str, parent: str | None) -> Limit:
    """An owner with any borrow and lend limit."""
    some = st.sampled_from((0, 0.5, 1, 2, 4)) | st.none()
    return a_limit(
        owner,
        guaranteed,
        gpu_class,
        parent=parent,
        borrow=draw(some),
        lend=draw(some),
        weight=draw(st.integers(0, 3)),
    )


@st.composite
def sites(draw: st.DrawFn) -> Snapshot:
    """A whole site; extensions of some of what is held."""
    fleet = draw(fleets())
    held = draw(held_rows(fleet))
    by_booking = tuple(draw(requests(number)) for number in range(draw(st.integers(1, 8))))
    extensions = tuple(
        Extension(row.booking, row.ends + draw(st.integers(1, 5)) * 1_000)
        for row in held
        if draw(st.integers(0, 3)) == 0
    )
    # Four GPUs a node at most, so what is held has its cores everywhere.
    hosts = tuple(Host(node, 48_000, 65_536) for node in sorted({gpu.node for gpu in fleet}))
    return a_snapshot(
        *by_booking,
        fleet=fleet,
        held=held,
        extensions=extensions,
        limits=draw(limits()),
        hosts=hosts,
    )


def the_next(site: Snapshot, plan: Plan, seconds: int = 5) -> Snapshot:
    """The site some seconds later, with the plan made true."""
    by_booking = {request.booking: request for request in site.requests}
    until = {extend.booking: extend.until for extend in plan.extensions if extend.granted}
    held = tuple(replace(row, ends=until.get(row.booking, row.ends)) for row in moved(site.held, plan))
    given = tuple(
        Held(
            id=f"{row.booking}/{place.gpu}/{place.start}",
            booking=row.booking,
            tenant=by_booking[row.booking].tenant,
            project=by_booking[row.booking].project,
            place=place,
            starts=row.starts,
            ends=row.ends,
            started=row.starts <= site.now,
            tier=by_booking[row.booking].tier,
            owner=by_booking[row.booking].owner,
            cores=by_booking[row.booking].ask.cores,
            memory=by_booking[row.booking].ask.memory,
            level=level_of(by_booking[row.booking]),
            granted=(site.now, row.position),
        )
        for row in plan.assigns
        for place in row.places
    )
    promised = tuple(
        replace(
            by_booking[row.booking],
            planned=PlannedStart(row.starts, row.ends, row.places, row.strength),
        )
        for row in plan.waits
    )
    now = site.now + seconds
    begun = sorted((row for row in (*held, *given) if row.starts <= now), key=lambda r: r.starts)
    cut: dict[str, Mode] = {row.place.gpu: "sliced" if row.place.profile else "whole" for row in begun}
    fleet = tuple(
        replace(gpu, stands=cut.get(gpu.id, gpu.stands)) if gpu.stands else gpu for gpu in site.gpus
    )
    live = tuple(replace(row, started=row.starts <= now) for row in (*held, *given) if row.ends > now)
    return replace(site, now=now, gpus=fleet, held=live, requests=promised, extensions=())
