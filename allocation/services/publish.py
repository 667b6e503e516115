"""Telling nodes what to make true: the whole desired state, signed, whenever it has changed."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

import redis
from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef

from allocation import wire
from allocation.models import Allocation, Booking, MigPlacement, Node, Pause, SolverState
from allocation.services.fleet import node_key, reads
from allocation.services.frozen import BEGUN, TOLD, frozen_forget, resumes_on, suspended_on
from allocation.services.links import agents_redis
from allocation.services.pauses import OPEN
from allocation.services.strangers import ladder_of

logger = logging.getLogger(__name__)

Profiles = Mapping[tuple[str, str], int]
_METHODS: dict[str, wire.PauseMethod] = {"stop": "stop", "signal": "signal", "suspend": "suspend"}


def publish_due(now: datetime) -> int:
    """Writes the assignment of every node whose generation was not published yet.

    Needs no outbox: whoever finds `published_generation < generation` writes the whole document.
    A server that is down loses nothing; the next call writes it. Returns how many were written.
    """
    frozen_forget(now)
    waiting = Node.objects.filter(
        published_generation__lt=F("generation"), link_digest__isnull=False
    )
    try:
        return _publish(waiting.values_list("id", flat=True))
    except redis.RedisError as error:
        logger.warning("Assignments were not published, to be tried again: %s", error)
        return 0


def republish_all() -> int:
    """Writes every node's assignment again, e.g. after the server has lost its data."""
    return _publish(Node.objects.filter(link_digest__isnull=False).values_list("id", flat=True))


def _publish(node_ids: Iterable[UUID]) -> int:
    ids = list(node_ids)
    if not ids:
        return 0
    epoch = SolverState.objects.values_list("epoch", flat=True).get(id=1)
    profiles = {
        (model, profile): number
        for model, profile, number in MigPlacement.objects.values_list(
            "model_id", "profile", "profile_id"
        )
    }
    for node_id in ids:
        _publish_one(node_id, epoch, profiles)
    return len(ids)


def _publish_one(node_id: UUID, epoch: int, profiles: Profiles) -> None:
    """One node at a time, locked: a slow publisher must not write an older document over a newer
    one, nor the state of one generation under the number of another."""
    with transaction.atomic():
        node = Node.objects.select_for_update().get(id=node_id)
        knows_pauses = reads(node, wire.PAUSES_SINCE)
        resumes = resumes_on(node) if knows_pauses else {}
        told = _allocations_by_gpu(node, profiles, resumes)
        desired = wire.Desired(
            node=node.name,
            epoch=epoch,
            generation=node.generation,
            gpus=tuple(
                _desired_gpu(gpu.uuid, gpu.mode, told[gpu.id])
                for gpu in node.gpus.order_by("index")
            ),
            gangs=_gangs(node) if reads(node, wire.LATER_SINCE) else (),
            rotation=_rotation(node),
            suspended=suspended_on(node, resumes.values()) if knows_pauses else None,
            ladder=ladder_of(node),
        )
        signs = node.key_confirmed
        envelope = wire.seal(desired, key=node_key(node, signs), key_version=signs)
        link = agents_redis()
        link.set(wire.desired_key(node.name), envelope.to_json())
        link.publish(wire.wake_channel(node.name), str(node.generation))
        node.published_generation = node.generation
        node.save(update_fields=["published_generation"])


def _gangs(node: Node) -> tuple[wire.Gang, ...]:
    """The bookings that lie on this node and on others.

    Who belongs to a run does not change from its start on, whatever becomes of its members, so
    that one generation always has the same document. What it had before a pause is no part of it.
    """
    here = Allocation.objects.filter(gpu__node=node, state__in=TOLD, left=False)
    this_run = here.filter(
        booking=OuterRef("booking"), period__startswith=OuterRef("period__startswith")
    )
    rows = (
        Allocation.objects.filter(Exists(this_run), state__in=BEGUN, left=False)
        .values("tenant__slug", "booking__number", "gpu__node__name")
        .annotate(devices=Count("id"))
        .order_by("tenant__slug", "booking__number", "gpu__node__name")
    )
    members: dict[tuple[str, int], list[wire.Member]] = defaultdict(list)
    for row in rows:
        member = wire.Member(node=row["gpu__node__name"], devices=row["devices"])
        members[row["tenant__slug"], row["booking__number"]].append(member)
    return tuple(
        wire.Gang(tenant=tenant, booking=Booking(number=number).label, members=tuple(found))
        for (tenant, number), found in members.items()
        if len(found) > 1
    )


def _rotation(node: Node) -> wire.Rotation | None:
    """The key that the agent has not signed with yet, for its eyes only."""
    if node.key_confirmed == node.key_version:
        return None
    old, new, version = node_key(node, node.key_confirmed), node_key(node), node.key_version
    hidden = wire.key_hide(old=old, new=new, node=node.name, version=version)
    return wire.Rotation(version=version, hidden=hidden)


def _allocations_by_gpu(
    node: Node, profiles: Profiles, resumes: Mapping[UUID, str]
) -> dict[UUID, list[wire.DesiredAllocation]]:
    told: dict[UUID, list[wire.DesiredAllocation]] = defaultdict(list)
    notices = _notices(node)
    rows = (
        Allocation.objects.filter(gpu__node=node, state__in=TOLD)
        .select_related("booking__owner", "tenant")
        .order_by("start", "id")
    )
    for row in rows:
        told[row.gpu_id].append(
            wire.DesiredAllocation(
                id=row.id.hex,
                booking=row.booking.label,
                tenant=row.tenant.slug,
                owner=row.booking.owner.username,
                profile=row.profile,
                profile_id=profiles[(row.model_id, row.profile)] if row.profile else None,
                slot=row.start,
                size=row.size,
                starts=int(row.period.lower.timestamp()),
                ends=int(row.period.upper.timestamp()),
                state="release" if row.state == Allocation.State.RELEASING else "run",
                notice=_notice(row, notices.get(row.booking_id)),
                resumes=resumes.get(row.id),
                lease=row.leased,
                share=row.share,
            )
        )
    return told


def _notices(node: Node) -> dict[UUID, Pause]:
    """The pauses that this node's bookings were told of, if its agent knows what that is."""
    if not reads(node, wire.PAUSES_SINCE):
        # The end in the document alone makes it give the place back in time.
        return {}
    bookings = Allocation.objects.filter(gpu__node=node, state__in=TOLD).values("booking_id")
    found = Pause.objects.filter(OPEN, booking__in=bookings, emptied_at=None)
    return {pause.booking_id: pause for pause in found}


def _notice(row: Allocation, pause: Pause | None) -> wire.Notice | None:
    if pause is None or row.left:
        # What a broken run has left behind is not gone on with.
        return None
    return wire.Notice(
        id=pause.id.hex,
        told=int(pause.noticed_at.timestamp()),
        # Earlier than the deadline once everything is saved.
        at=int(row.period.upper.timestamp()),
        method=_METHODS[pause.method],
    )


def _desired_gpu(
    uuid: str, mode: str, allocations: list[wire.DesiredAllocation]
) -> wire.DesiredGpu:
    """What is told to run says what the GPU is."""
    running = [item for item in allocations if item.state == "run"] or allocations
    wanted: wire.Mode = "sliced" if mode == "sliced" else "whole"
    if running:
        wanted = "sliced" if running[0].profile else "whole"
        wanted = "shared" if running[0].share is not None else wanted
    return wire.DesiredGpu(uuid=uuid, mode=wanted, allocations=tuple(allocations))
