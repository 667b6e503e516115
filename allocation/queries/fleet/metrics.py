"""What those who run the portal watch, as numbers over everybody. No tenant is named."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count, F, Max, Q

from allocation.models import (
    Booking,
    Decision,
    EventCounter,
    Gpu,
    GpuEvent,
    GpuSample,
    GpuUse,
    Node,
    PortalMode,
)
from allocation.queries.fleet.fleet import UNREACHABLE_AFTER
from allocation.queries.fleet.portal_modes import backup_age, modes_in_force
from allocation.rules.states import State
from allocation.wire.exposition import Metric, Value

_COUNTED = (
    ("stale_dropped", "Messages of agents that were older than what is known."),
    ("refused", "Messages of agents that were not signed right or not readable."),
    ("throttled", "Seconds in which an agent said too much."),
    ("implausible", "Readings whose values can't be true together."),
    ("conflicts", "Words of agents that contradict the portal's record of a run."),
    ("refunded_seconds", "GPU-seconds not charged because agents reported failed hardware."),
)
_TALLIES = {
    "own_pauses": (
        "gpu_portal_own_pauses_total",
        "Pauses for a booking of the same owner, project or organisation.",
    ),
    "no_shows": ("gpu_portal_no_shows_total", "Bookings that nobody used."),
    "cycle_turns": ("gpu_portal_cycles_total", "Turns of the decision-maker."),
    "cycle_milliseconds": ("gpu_portal_cycle_milliseconds_total", "What those turns took."),
    "turns_ended_silent": (
        "gpu_portal_turns_ended_silent_total",
        "Turns whose process had stopped, ended by another solver.",
    ),
    "messages_unreadable": (
        "gpu_portal_messages_unreadable_total",
        "Entries of report streams that are no messages.",
    ),
    "unbooked_warned": (
        "gpu_portal_unbooked_processes_warned_total",
        "Processes without a booking whose terminals were written to.",
    ),
    "unbooked_asked": (
        "gpu_portal_unbooked_processes_asked_total",
        "Processes without a booking that were asked to end.",
    ),
    "unbooked_killed": (
        "gpu_portal_unbooked_processes_killed_total",
        "Processes without a booking that were ended.",
    ),
    "telemetry_absurd": (
        "gpu_portal_telemetry_absurd_total",
        "Measured values that can't be, dropped.",
    ),
    "telemetry_too_many": (
        "gpu_portal_telemetry_too_many_total",
        "Readings beyond what one message may hold, dropped.",
    ),
}
# The start of the tallies' names, and what may follow it: why.
_BY_WHY = (
    (
        "plans_dropped:",
        ("overtaken", "withheld", "conflict"),
        "gpu_portal_plans_dropped_total",
        "Plans of which nothing could be written.",
    ),
    (
        "answers_withheld:",
        ("left", "changed", "needed", "room_freed", "conflict"),
        "gpu_portal_answers_withheld_total",
        "Answers of plans that were not written, as bookings had changed meanwhile.",
    ),
)


def metrics_of(now: datetime) -> Iterator[Metric]:
    """Inside `operator_tx`: bookings, hardware, agents, decisions, telemetry."""
    yield _bookings()
    yield from _nodes(now)
    yield _gpus()
    yield from _cycles(now)
    yield from _telemetry(now)
    yield from _operations(now)
    counts = dict(EventCounter.objects.values_list("name", "count"))
    for key, (name, help_) in _TALLIES.items():
        yield Metric(name, "counter", help_, (Value(counts.get(key, 0)),))
    for prefix, known, name, help_ in _BY_WHY:
        values = tuple(Value(counts.get(prefix + why, 0), {"why": why}) for why in known)
        yield Metric(name, "counter", help_, values)


def _operations(now: datetime) -> Iterator[Metric]:
    age, modes = backup_age(now), {mode.kind for mode in modes_in_force(now)}
    values = () if age is None else (Value(age),)
    yield Metric("gpu_portal_backup_age_seconds", "gauge", "Age of the newest backup.", values)
    yield Metric(
        "gpu_portal_mode",
        "gauge",
        "1 while a planned outage or a freeze of decisions is in force.",
        tuple(Value(int(kind in modes), {"kind": kind}) for kind in PortalMode.Kind.values),
    )


def _bookings() -> Metric:
    found = dict(Booking.objects.values_list("state").annotate(count=Count("id")))
    values = tuple(Value(found.get(state.value, 0), {"state": state.value}) for state in State)
    return Metric("gpu_portal_bookings", "gauge", "Bookings by state.", values)


def _nodes(now: datetime) -> Iterator[Metric]:
    found = dict(Node.objects.values_list("state").annotate(count=Count("id")))
    states = tuple(Value(found.get(state, 0), {"state": state}) for state in Node.State.values)
    yield Metric("gpu_portal_nodes", "gauge", "Nodes by state.", states)
    enrolled = Q(link_digest__isnull=False)
    row = Node.objects.aggregate(
        silent=Count("id", filter=enrolled & Q(last_seen__lt=now - UNREACHABLE_AFTER)),
        untold=Count("id", filter=enrolled & Q(published_generation__lt=F("generation"))),
        behind=Count("id", filter=enrolled & Q(observed_generation__lt=F("generation"))),
        wrong=Count("id", filter=Q(clock_wrong=True)),
        cut_off=Count("id", filter=Q(partitioned=True)),
        unanswering=Count("id", filter=Q(unreachable_since__isnull=False)),
    )
    for key, help_ in (
        ("silent", "Nodes whose agent said nothing for 30 s."),
        ("untold", "Nodes whose newest assignment is not written yet."),
        ("behind", "Nodes whose agent does not act on the newest assignment yet."),
        ("cut_off", "Nodes that let a lease run out and have not caught up."),
        ("unanswering", "Nodes that get nothing new because they do not answer."),
    ):
        yield Metric(f"gpu_portal_nodes_{key}", "gauge", help_, (Value(row[key]),))
    yield Metric(
        "gpu_portal_nodes_clock_wrong", "gauge", "Nodes with a wrong clock.", (Value(row["wrong"]),)
    )
    slow = GpuEvent.objects.filter(kind=GpuEvent.Kind.SLOW, until=None).count()
    yield Metric(
        "gpu_portal_nodes_slow_starts", "gauge", "Nodes that starts wait for.", (Value(slow),)
    )
    counts = list(Node.objects.values("name", *(field for field, _ in _COUNTED)))
    for field, help_ in _COUNTED:
        values = tuple(Value(each[field], {"node": each["name"]}) for each in counts)
        yield Metric(f"gpu_portal_agent_{field}_total", "counter", help_, values)


def _gpus() -> Metric:
    rows = Gpu.objects.values_list("gpu_class_id", "health").annotate(count=Count("id"))
    values = tuple(
        Value(count, {"class": gpu_class, "health": health})
        for gpu_class, health, count in rows.order_by("gpu_class_id", "health")
    )
    return Metric("gpu_portal_gpus", "gauge", "GPUs by class and health.", values)


def _cycles(now: datetime) -> Iterator[Metric]:
    last = Decision.objects.values_list("at", "solve_ms").order_by("-id").first()
    seconds = None if last is None else last[1] / 1000
    yield Metric(
        "gpu_portal_solve_seconds",
        "gauge",
        "How long the last decision that changed something took to find.",
        (Value(seconds),),
    )
    age = None if last is None else (now - last[0]).total_seconds()
    yield Metric("gpu_portal_decision_age_seconds", "gauge", "How old it is.", (Value(age),))


def _telemetry(now: datetime) -> Iterator[Metric]:
    for name, help_, at in (
        ("reading", "Age of the youngest reading.", GpuSample.objects.aggregate(at=Max("at"))),
        ("row", "Age of the youngest five-minute row.", GpuUse.objects.aggregate(at=Max("at"))),
    ):
        age = None if at["at"] is None else (now - at["at"]).total_seconds()
        yield Metric(f"gpu_portal_telemetry_{name}_age_seconds", "gauge", help_, (Value(age),))
