"""What happens to a world from outside: hardware, limits, tiers and the policy."""

from dataclasses import replace
from typing import TYPE_CHECKING

from solver import Maintenance
from tests.worlds.draw import Event
from tests.worlds.jobs import HOUR

if TYPE_CHECKING:
    from tests.worlds.life import World


def outside_happen(world: "World", event: Event) -> str:
    """Makes an event true and returns its kind."""
    if event.kind == "limits":
        world.limits = event.limits
    elif event.kind == "failure":
        _break(world, event.node)
    elif event.kind in ("drain", "in service"):
        _drain(world, event)
    elif event.kind in ("repair", "silence", "answer"):
        world.broken.discard(event.node)
        world.silent ^= {event.node} - {gpu.id for gpu in world.drawn.gpus}
    elif event.kind == "tiers":
        _new_tiers(world, event)
    elif event.kind == "policy" and event.policy is not None:
        world.policy = event.policy
        world.classes.forget()
    elif event.kind == "maintenance":
        starts = event.until - 2 * HOUR
        world.blackouts += tuple(
            Maintenance(gpu.id, starts, event.until) for gpu in world.drawn.gpus if gpu.node == event.node
        )
    else:
        gone = {gpu.id for gpu in world.drawn.gpus if gpu.node == event.node}
        world.blackouts = tuple(each for each in world.blackouts if each.gpu not in gone)
    return event.kind


def _new_tiers(world: "World", event: Event) -> None:
    """Bookings have the tiers of the same names."""
    world.tiers = event.tiers
    by_slug = {tier.slug: tier for tier in event.tiers}
    for run in world.runs.values():
        run.job = replace(run.job, tier=by_slug[run.job.tier.slug])
    world.arrivals[:] = [replace(job, tier=by_slug[job.tier.slug]) for job in world.arrivals]


def _break(world: "World", gpu: str) -> None:
    """What runs on a GPU that fails is over; what is written there waits again."""
    world.broken.add(gpu)
    for name in sorted({row.booking for row in world.rows if row.place.gpu == gpu}):
        if any(row.started for row in world.rows_of(name)):
            world.leave(name, world.now, is_paused=False)
        else:
            _wait_again(world, name)


def _drain(world: "World", event: Event) -> None:
    """What runs on a GPU that takes no new work stays; what is written there waits again."""
    gpus = {gpu.id for gpu in world.drawn.gpus if event.node in (gpu.id, gpu.node)}
    if event.kind == "in service":
        world.drained -= gpus
        return
    world.drained |= gpus
    for name in sorted({row.booking for row in world.rows if row.place.gpu in gpus}):
        if not any(row.started for row in world.rows_of(name)):
            _wait_again(world, name)


def _wait_again(world: "World", name: str) -> None:
    """A booking that was to start waits in the queue again; an offer stays as it is."""
    if name not in world.people.offers:
        run = world.runs[name]
        world.rows = [row for row in world.rows if row.booking != name]
        request = replace(world.request_of(run.job), series=None)
        if run.pauses:
            request = replace(
                request,
                duration=run.planned,
                paused=True,
                pauses=run.pauses,
                latest=None,
                fixed=False,
                durations=(),
            )
        world.waiting[name] = request
