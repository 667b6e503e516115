"""Prometheus metrics of bookings, hardware and agents. They name no tenant."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, time, timedelta

from django.db import connection
from django.db.models import Count, F, Max, Min, Q, Sum
from django.db.models.functions import Greatest

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
from allocation.points import METRICS
from allocation.queries.fleet.fleet import UNREACHABLE_AFTER
from allocation.queries.fleet.in_use import live_allocations
from allocation.queries.fleet.portal_modes import backup_age, modes_in_force
from allocation.rules.states import WAITING, State
from billing.queries import BudgetFigures, running_budgets
from billing.rules import UNITS_PER_GPU
from solver import Snapshot
from wire.exposition import Metric, Value

_COUNTED = (
    ("stale_dropped", "Outdated messages of agents, dropped."),
    ("refused", "Messages of agents with an invalid signature or format."),
    ("throttled", "Seconds in which an agent exceeded its rate limit."),
    ("implausible", "Contradictory readings."),
    ("conflicts", "Reports that contradict the portal's record of a run."),
    ("refunded_seconds", "GPU-seconds not charged because agents reported failed hardware."),
)
_TALLIES = {
    "own_pauses": (
        "gpu_portal_own_pauses_total",
        "Pauses for a booking of the same owner, project or organisation.",
    ),
    "no_shows": ("gpu_portal_no_shows_total", "Bookings that nobody used."),
    "idle_releases": ("gpu_portal_idle_releases_total", "Idle bookings that others replaced."),
    "cycle_turns": ("gpu_portal_cycles_total", "Cycles of the solver."),
    "cycle_milliseconds": ("gpu_portal_cycle_milliseconds_total", "Duration of these cycles."),
    "turns_ended_silent": (
        "gpu_portal_turns_ended_silent_total",
        "Cycles whose process had stopped, ended by another solver.",
    ),
    "messages_unreadable": (
        "gpu_portal_messages_unreadable_total",
        "Malformed report-stream entries.",
    ),
    "unbooked_warned": (
        "gpu_portal_unbooked_processes_warned_total",
        "Processes without a booking that were warned on their terminals.",
    ),
    "unbooked_asked": (
        "gpu_portal_unbooked_processes_asked_total",
        "Processes without a booking that were asked to end.",
    ),
    "unbooked_killed": (
        "gpu_portal_unbooked_processes_killed_total",
        "Processes without a booking that were killed.",
    ),
    "progress_refused": (
        "gpu_portal_progress_refused_total",
        "Lines of progress from nodes that changed nothing: late, backwards, or not readable.",
    ),
    "telemetry_absurd": (
        "gpu_portal_telemetry_absurd_total",
        "Impossible values of readings, dropped.",
    ),
    "telemetry_too_many": (
        "gpu_portal_telemetry_too_many_total",
        "Readings above the limit of one message, dropped.",
    ),
}
# (Prefix of the counters' names, their reasons, metric, help).
_LABELS = {"pauses_dropped:": "rule", "shards:": "outcome", "state_drift:": "section"}
_BY_WHY = (
    (
        "plans_dropped:",
        ("overtaken", "withheld", "conflict"),
        "gpu_portal_plans_dropped_total",
        "Plans that were dropped as a whole.",
    ),
    (
        "answers_withheld:",
        ("left", "changed", "needed", "room_freed", "conflict"),
        "gpu_portal_answers_withheld_total",
        "Parts of plans that were dropped, because their bookings had changed.",
    ),
    (
        "shards:",
        ("sent", "answered", "here", "unusable", "too_late", "too_large", "lost"),
        "gpu_portal_shards_total",
        "Shards that were sent to workers, and what became of them.",
    ),
    (
        "state_drift:",
        tuple(field.name for field in fields(Snapshot) if field.name != "now"),
        "gpu_portal_state_drift_total",
        "Sections in which a kept snapshot differed from a fresh one: a fault of the portal.",
    ),
    (
        "pauses_dropped:",
        ("taken_back", "own_part", "higher_tier", "fairer_share"),
        "gpu_portal_pauses_dropped_total",
        "Pauses that a rule allows and that would not bring pauses to rest: a fault of the rules.",
    ),
)
_USED = ((100, "all"), (80, "over_80"), (50, "over_50"), (0, "under_50"))
_QUANTILES = (0.5, 0.9, 1.0)
# A budget that has just begun has no pace yet.
_BEGUN = timedelta(days=1)


def metrics_of(now: datetime) -> Iterator[Metric]:
    """Metrics of bookings, hardware, agents, decisions and telemetry. Runs inside `operator_tx`."""
    yield _bookings()
    yield from _nodes(now)
    yield _gpus()
    yield from _use(now)
    yield from _cycles(now)
    yield from _telemetry(now)
    yield from _operations(now)
    for read in METRICS:
        yield from read(now)
    counts = dict(EventCounter.objects.values_list("name", "count"))
    for key, (name, help_) in _TALLIES.items():
        yield Metric(name, "counter", help_, (Value(counts.get(key, 0)),))
    for prefix, known, name, help_ in _BY_WHY:
        label = _LABELS.get(prefix, "why")
        values = tuple(Value(counts.get(prefix + why, 0), {label: why}) for why in known)
        yield Metric(name, "counter", help_, values)


def _operations(now: datetime) -> Iterator[Metric]:
    age, modes = backup_age(now), {mode.kind for mode in modes_in_force(now)}
    values = () if age is None else (Value(age),)
    yield Metric("gpu_portal_backup_age_seconds", "gauge", "Age of the newest backup.", values)
    yield Metric(
        "gpu_portal_mode",
        "gauge",
        "1 during a planned outage or a decision freeze.",
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
        ("silent", "Nodes without a heartbeat for 30 s."),
        ("untold", "Nodes whose newest assignment is not published yet."),
        ("behind", "Nodes whose agent has not applied the newest assignment."),
        ("cut_off", "Nodes whose lease expired and that have not caught up."),
        ("unanswering", "Nodes that get no new work because they are unreachable."),
    ):
        yield Metric(f"gpu_portal_nodes_{key}", "gauge", help_, (Value(row[key]),))
    yield Metric("gpu_portal_nodes_clock_wrong", "gauge", "Nodes with a wrong clock.", (Value(row["wrong"]),))
    slow = GpuEvent.objects.filter(kind=GpuEvent.Kind.SLOW, until=None).count()
    yield Metric("gpu_portal_nodes_slow_starts", "gauge", "Nodes with slow starts.", (Value(slow),))
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


def _use(now: datetime) -> Iterator[Metric]:
    """GPUs in use, how long the oldest waits, and how fast budgets are spent. Runs inside `operator_tx`."""
    rows = live_allocations(now).values_list("gpu__gpu_class_id").annotate(Sum("units"))
    used = tuple(
        Value(units / UNITS_PER_GPU, {"class": name}) for name, units in rows.order_by("gpu__gpu_class_id")
    )
    yield Metric("gpu_portal_gpus_in_use", "gauge", "GPUs that bookings have; slices by their size.", used)
    yield Metric(
        "gpu_portal_queue_age_seconds",
        "gauge",
        "How long the oldest booking has waited that could start.",
        (Value(_oldest_wait(now)),),
    )
    yield from _budgets(running_budgets(now), now)


def _oldest_wait(now: datetime) -> float:
    """Seconds since the oldest waiting booking was asked for and could start; 0: nobody waits."""
    waiting = Booking.objects.filter(state__in=WAITING, not_before__lte=now, starts=None)
    since = waiting.aggregate(at=Min(Greatest(F("submitted"), F("not_before"))))["at"]
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _budgets(budgets: Sequence[BudgetFigures], now: datetime) -> Iterator[Metric]:
    counts = dict.fromkeys((name for _, name in _USED), 0)
    for each in budgets:
        counts[next((name for least, name in _USED if each.used_percent >= least), "under_50")] += 1
    values = tuple(Value(count, {"used": name}) for name, count in counts.items())
    yield Metric(
        "gpu_portal_budgets", "gauge", "Budgets of projects by what is spent and held of them.", values
    )
    paces = sorted(pace for each in budgets if (pace := burn(each, now)) is not None)
    at = (paces[min(len(paces) - 1, int(part * len(paces)))] for part in _QUANTILES if paces)
    yield Metric(
        "gpu_portal_budget_burn",
        "gauge",
        "Spent part of a budget over the past part of its period, of all projects: above 1 it ends early.",
        tuple(Value(pace, {"quantile": str(part)}) for part, pace in zip(_QUANTILES, at, strict=False)),
    )


def burn(budget: BudgetFigures, now: datetime) -> float | None:
    """The spent part of a budget over the part of its period that is over; None: it has just begun."""
    begins = datetime.combine(budget.starts, time(), UTC)
    past, whole = now - begins, datetime.combine(budget.ends, time(), UTC) - begins
    if past < _BEGUN or not budget.amount:
        return None
    return float(budget.spent / budget.amount) / (past / whole)


def _cycles(now: datetime) -> Iterator[Metric]:
    last = Decision.objects.values_list("at", "solve_ms").order_by("-id").first()
    seconds = None if last is None else last[1] / 1000
    yield Metric(
        "gpu_portal_solve_seconds",
        "gauge",
        "Solver time of the latest decision that changed something.",
        (Value(seconds),),
    )
    age = None if last is None else (now - last[0]).total_seconds()
    yield Metric("gpu_portal_decision_age_seconds", "gauge", "Age of it.", (Value(age),))


def _telemetry(now: datetime) -> Iterator[Metric]:
    for name, help_, at in (
        ("reading", "Age of the newest reading.", GpuSample.objects.aggregate(at=Max("at"))),
        ("row", "Age of the newest five-minute row.", GpuUse.objects.aggregate(at=Max("at"))),
    ):
        age = None if at["at"] is None else (now - at["at"]).total_seconds()
        yield Metric(f"gpu_portal_telemetry_{name}_age_seconds", "gauge", help_, (Value(age),))


WINDOW = timedelta(minutes=15)
# The newest events only: more than a busy quarter of an hour has.
MAX_EVENTS_READ = 50_000
QUANTILES = (0.5, 0.9, 0.99)

# A booking is decided at the first event after the request that its owner did not cause.
_DELAYS = """
WITH recent AS (
  SELECT id, booking_id, at, kind FROM allocation_bookingevent
  WHERE id > (SELECT coalesce(max(id), 0) FROM allocation_bookingevent) - %(most)s
    AND at > %(since)s AND at <= %(now)s),
decided AS (
  SELECT extract(epoch FROM min(later.at) - asked.at) AS seconds
  FROM recent asked JOIN recent later ON later.booking_id = asked.booking_id
    AND later.id > asked.id AND later.kind IN ('queued', 'scheduled', 'refused', 'starting')
  WHERE asked.kind = 'requested' GROUP BY asked.id, asked.at),
started AS (
  SELECT extract(epoch FROM recent.at - booking.submitted) AS waited,
         extract(epoch FROM recent.at - greatest(booking.first_planned_start, booking.submitted)) AS
         late
  FROM recent JOIN allocation_booking booking ON booking.id = recent.booking_id
  WHERE recent.kind = 'started')
SELECT 'decision', count(*), percentile_cont(%(quantiles)s::float8[])
    WITHIN GROUP (ORDER BY seconds) FROM decided
UNION ALL
SELECT 'start', count(*), percentile_cont(%(quantiles)s::float8[])
    WITHIN GROUP (ORDER BY waited) FROM started
UNION ALL
SELECT 'late', count(*), percentile_cont(%(quantiles)s::float8[])
    WITHIN GROUP (ORDER BY greatest(late, 0)) FROM started
"""
_NAMES = {
    "decision": (
        "gpu_portal_request_to_decision_seconds",
        "From a request to its decision, of the decisions of the last 15 minutes.",
    ),
    "start": (
        "gpu_portal_request_to_start_seconds",
        "From a request to the hand-over, of the starts of the last 15 minutes.",
    ),
    "late": (
        "gpu_portal_start_lateness_seconds",
        "From the first planned start to the hand-over, of the starts of the last 15 minutes.",
    ),
}


def delay_metrics(now: datetime) -> Iterator[Metric]:
    """Quantiles of delays with their number of bookings. Runs inside `operator_tx`."""
    with connection.cursor() as cursor:
        cursor.execute(
            _DELAYS,
            {
                "most": MAX_EVENTS_READ,
                "since": now - WINDOW,
                "now": now,
                "quantiles": list(QUANTILES),
            },
        )
        rows = cursor.fetchall()
    for key, count, found in rows:
        name, help_ = _NAMES[key]
        values = tuple(
            Value(seconds, {"quantile": str(quantile)})
            for quantile, seconds in zip(QUANTILES, found or (), strict=False)
        )
        yield Metric(name, "gauge", help_, values)
        yield Metric(f"{name}_bookings", "gauge", "Number of these bookings.", (Value(count),))


def database_size_metrics() -> Iterator[Metric]:
    """The size of the database and of its largest tables on disk. Runs inside `operator_tx`."""
    with connection.cursor() as cursor:
        # pg_database_size requires the CONNECT privilege, which the operators' role lacks.
        cursor.execute(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind IN ('r', 'm')"
        )
        (whole,) = cursor.fetchone()
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'm')"
            " ORDER BY 2 DESC, 1 LIMIT 12"
        )
        tables = cursor.fetchall()
    yield Metric("gpu_portal_database_bytes", "gauge", "Size of the database.", (Value(whole),))
    yield Metric(
        "gpu_portal_table_bytes",
        "gauge",
        "Size of the twelve largest tables, with their indexes.",
        tuple(Value(size, {"table": table}) for table, size in tables),
    )
