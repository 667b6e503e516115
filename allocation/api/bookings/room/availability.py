"""Availability: when the GPUs of a class are free or busy. Other tenants' bookings are
anonymous."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain, pairwise
from typing import Any
from uuid import UUID

from django.db import connection
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.room.periods import PeriodQuery, period_check
from allocation.models import Gpu
from allocation.queries.fleet.maintenance import maintenance_by_gpu, maintenance_open
from allocation.services.quotes.free_times import Stretch, free_times_read
from solver.model.inputs import SLOTS_PER_GPU
from tenants.api.base import ApiView
from tenants.models import GpuClass
from tenants.platform.costly import costly
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Text
from tenants.platform.rest.schema import described

SPAN_MAX = timedelta(days=28)
SPAN_DEFAULT = timedelta(days=1)

Block = tuple[str, int, int, datetime, datetime, bool]


class AvailabilityQuery(PeriodQuery):
    """A GPU class and a period. The default period is the next 24 hours."""

    gpu_class = Text(max_length=40)


class BusyOut(serializers.Serializer[Any]):
    """Memory slots of a GPU that are taken during [`starts`, `ends`)."""

    mode = serializers.CharField(help_text="`whole`, `sliced`, `shared` or `maintenance`.")
    start = serializers.IntegerField(help_text="First memory slot.")
    size = serializers.IntegerField(help_text="Number of memory slots, of eight.")
    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    mine = serializers.BooleanField(help_text="True for bookings of your tenant.")


class StretchOut(serializers.Serializer[Any]):
    """A half-open period: [`starts`, `ends`)."""

    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()


class GpuBusyOut(serializers.Serializer[Any]):
    """One GPU with its busy and free periods."""

    id = serializers.UUIDField()
    node = serializers.CharField()
    index = serializers.IntegerField()
    usable = serializers.BooleanField(help_text="True while the GPU is in service.")
    busy = BusyOut(many=True)
    free = StretchOut(
        many=True,
        help_text="Periods in which the whole GPU can be booked. Empty for a GPU that is pinned to slices.",
    )


class FreeOut(serializers.Serializer[Any]):
    """The number of whole GPUs that can be booked during [`starts`, `ends`), before quotas. The
    past counts as 0."""

    starts = serializers.DateTimeField()
    ends = serializers.DateTimeField()
    whole_gpus = serializers.IntegerField()


class AvailabilityOut(serializers.Serializer[Any]):
    """Free and busy periods of a class."""

    gpu_class = serializers.CharField()
    starts = serializers.DateTimeField()
    until = serializers.DateTimeField()
    free = FreeOut(many=True)
    gpus = GpuBusyOut(many=True)


@costly("quote")
class Availability(ApiView):
    """Free and busy periods of a class."""

    queries = {"GET": AvailabilityQuery}

    @described(
        "get_availability",
        "Retrieve the availability of a GPU class",
        answer=AvailabilityOut,
        query=AvailabilityQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns busy and free periods for each GPU, and the number of free whole GPUs over time.
        A request covers at most 28 days."""
        since = self.query.get("from", self.now)
        until = self.query.get("until", since + SPAN_DEFAULT)
        period_check(since, until, SPAN_MAX)
        gpu_class = self.query["gpu_class"]
        with self.tx():
            if not GpuClass.objects.filter(slug=gpu_class).exists():
                raise missing("GPU class", "gpu_class")
            gpus = list(
                Gpu.objects.filter(gpu_class_id=gpu_class)
                .select_related("node")
                .order_by("node__name", "index")
            )
            busy = _busy(since, until, {gpu.id for gpu in gpus})
            _maintenance(since, until, gpus, busy)
            times = free_times_read(is_operator=False, since=since, until=until, now=self.now)
        free = {gpu.id: times.by_gpu.get(gpu.id, ()) for gpu in gpus}
        answer = AvailabilityOut(
            {
                "gpu_class": gpu_class,
                "starts": since,
                "until": until,
                "free": _steps(since, until, free.values()),
                "gpus": [_gpu(gpu, busy[gpu.id], free[gpu.id]) for gpu in gpus],
            }
        )
        return Response(answer.data)


def _busy(since: datetime, until: datetime, wanted: set[UUID]) -> dict[UUID, list[Block]]:
    found: dict[UUID, list[Block]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT * FROM portal_busy(%s, %s) UNION ALL SELECT * FROM portal_planned(%s, %s)",
            [since, until, since, until],
        )
        for gpu_id, *block in cursor.fetchall():
            if gpu_id in wanted:
                mode, start, size, starts, ends, mine = block
                clipped = max(starts, since), min(ends, until)
                found[gpu_id].append((mode, start, size, *clipped, bool(mine)))
    for blocks in found.values():
        blocks.sort(key=lambda block: (block[3], block[1]))
    return found


def _maintenance(since: datetime, until: datetime, gpus: list[Gpu], busy: dict[UUID, list[Block]]) -> None:
    """Adds the periods in which GPUs are reserved for maintenance."""
    for gpu, maintenance in maintenance_by_gpu(maintenance_open(since), gpus):
        starts, ends = max(maintenance.starts, since), min(maintenance.ends, until)
        if starts < ends:
            busy[gpu.id].append(("maintenance", 0, SLOTS_PER_GPU, starts, ends, False))
            busy[gpu.id].sort(key=lambda block: (block[3], block[1]))


def _gpu(gpu: Gpu, blocks: Iterable[Block], free: Sequence[Stretch]) -> dict[str, Any]:
    names = ("mode", "start", "size", "starts", "ends", "mine")
    return {
        "id": gpu.id,
        "node": gpu.node.name,
        "index": gpu.index,
        "usable": gpu.health == Gpu.Health.OK and gpu.node.keeps_planned_work,
        "busy": [dict(zip(names, block, strict=True)) for block in blocks],
        "free": [{"starts": starts, "ends": ends} for starts, ends in free],
    }


def _steps(since: datetime, until: datetime, stretches: Iterable[Sequence[Stretch]]) -> list[dict[str, Any]]:
    """The number of free GPUs as a step function over the period."""
    steps: dict[datetime, int] = defaultdict(int)
    for starts, ends in chain.from_iterable(stretches):
        steps[starts] += 1
        steps[ends] -= 1
    level = 0
    periods: list[dict[str, Any]] = []
    for starts, ends in pairwise(sorted({since, until, *steps})):
        level += steps.get(starts, 0)
        if periods and periods[-1]["whole_gpus"] == level:
            periods[-1]["ends"] = ends
        else:
            periods.append({"starts": starts, "ends": ends, "whole_gpus": level})
    return periods
