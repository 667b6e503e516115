"""The catalogue of events that programs can receive. Pure."""

from collections.abc import Collection, Iterable, Sequence

TEST = "webhook.test"
EVENT_TYPES = {
    "booking.requested": "A booking was requested.",
    "booking.policy_hook": "The policy hook of the organisation admitted or changed a request.",
    "booking.diverted": "Another of the classes of a request was put first, on which a step costs less.",
    "booking.approval_requested": "A booking waits for an approval.",
    "booking.countered": "An approver offered something else than a booking asked for.",
    "booking.place_kept": "A place is kept for a booking that waits for an approval.",
    "booking.place_lost": "The place of a booking that waits for an approval is kept no longer.",
    "booking.approved": "A booking was approved.",
    "booking.declined": "A booking was declined.",
    "booking.approval_expired": "Nobody approved a booking in time.",
    "booking.waitlisted": "A booking waits for a window that is full.",
    "booking.offered": "A place is offered to a booking that waits for one.",
    "booking.offer_declined": "An offer was declined.",
    "booking.offer_expired": "Nobody answered an offer in time.",
    "booking.offer_withdrawn": "An offer was withdrawn for a booking inside its guarantee.",
    "booking.queued": "A booking waits, with or without a planned start.",
    "booking.moved": "The planned start is earlier than announced, or the planned GPUs changed.",
    "booking.delayed": "The planned start is later than the range that was announced.",
    "booking.scheduled": "A booking has its GPUs and its time.",
    "booking.refused": "A booking was refused.",
    "booking.starting": "A node prepares the GPUs of a booking.",
    "booking.start_slow": "The start of a booking takes longer than usual.",
    "booking.started": "The GPUs were handed over.",
    "booking.checked_in": "A process was seen, or a person checked in.",
    "booking.ends_soon": "A running booking ends in 30 minutes.",
    "booking.no_show_warned": "Nobody uses the GPUs; the booking ends soon.",
    "booking.no_show": "The booking ends because nobody used it.",
    "booking.idle_warned": "All GPUs are idle; the booking can end or be paused soon.",
    "booking.cores_raised": "Free host cores are lent to running work that waits for input.",
    "booking.cores_returned": "Running work has only its own host cores again.",
    "booking.idle_over": "GPUs that were idle are in use again.",
    "booking.still_needed": "The owner said that idle GPUs are still needed.",
    "booking.idle_ended": "The booking ends because its GPUs were idle and others wait for them.",
    "booking.changed": "The booking was changed.",
    "booking.change_asked": "A change was requested that needs a decision.",
    "booking.change_kept": "A change was not possible; the booking keeps what it has.",
    "booking.change_waits": "A change waits for room; the booking keeps what it has.",
    "booking.change_withdrawn": "A requested change was withdrawn.",
    "booking.late_charged": "Granted time was given up late, and a share of its price was charged.",
    "booking.late_refunded": "A late change was undone, and what it cost was refunded.",
    "booking.hand_over": "A booking is offered to a colleague, or such an offer is over.",
    "booking.handed_over": "A colleague accepted a booking and is its owner now.",
    "booking.override_granted": "An exception from a limit was granted for the booking.",
    "booking.override_ended": "An exception from a limit for the booking has ended.",
    "booking.at_risk": "The booking can be paused, because it uses borrowed quota.",
    "booking.drained": "A limit of a budget keeps the booking from starting.",
    "booking.work_stopped": "An operator's stop keeps the booking from starting.",
    "booking.drained_no_more": "No budget and no stop keeps the booking from starting any more.",
    "booking.borrowing_stopped": "A limit of a budget keeps the booking from borrowed GPUs.",
    "booking.cheapest_only": "A limit of a budget keeps the booking on its cheapest class.",
    "booking.cheapest_no_more": "No budget keeps the booking on its cheapest class any more.",
    "booking.borrowing_allowed": "No budget keeps the booking from borrowed GPUs any more.",
    "booking.leave_by": "The booking has to leave its node by a time.",
    "booking.pause_notified": "The booking will be paused, after its grace period.",
    "booking.pause_withdrawn": "A notified pause was withdrawn.",
    "booking.more_time": "A notified pause was postponed.",
    "booking.more_time_refused": "A notified pause could not be postponed.",
    "booking.saved": "The program saved its work before a pause.",
    "booking.paused": "The booking is paused.",
    "booking.pause_contested": "A person contested a pause of the booking.",
    "booking.pause_answered": "A contested pause of the booking has an answer.",
    "booking.resumed": "The GPUs were handed over again.",
    "booking.broken_off": "The run was lost, because its hardware failed.",
    "booking.replaced": "The booking starts again elsewhere.",
    "booking.ending": "The GPUs are being cleared.",
    "booking.ended": "The booking ended.",
    "booking.cancelled": "The booking was cancelled.",
    "booking.expired": "No GPUs were free in time, or a limit no longer allows it.",
    "booking.failed": "The booking failed.",
    "booking.result": "The program of a booking reported success or failure.",
    "booking.array_started": "The first element of an array has started.",
    "booking.array_failures": "Elements of an array have failed; at most once an hour.",
    "booking.array_ended": "The last element of an array is over.",
    "booking.corrected": "An operator corrected the charge.",
    "booking.release_asked": "An operator asks to release the booking.",
    "booking.message": "An operator sent a message about the booking.",
    "budget.threshold_reached": "A budget reached the share of one of its alerts or limits.",
    "budget.threshold_cleared": "A budget is below the share of one of its alerts or limits again.",
    "budget.variance": "The spend of a budget differs from its plan or its usual days.",
    "dispute.raised": "A statement, or a booking in it, is disputed.",
    "dispute.answered": "An operator answered a dispute.",
    "price_book.published": "Other prices were published.",
    "node.unreachable": "A node does not answer; it gets no new work.",
    "node.reachable": "A node answers again.",
    "gpu.unhealthy": "A GPU was taken out of service.",
    "gpu.returned": "An operator returned a GPU to service.",
    "policy.activated": "Another version of the policy is live.",
    "maintenance.planned": "Maintenance was planned.",
    "maintenance.changed": "Planned or running maintenance got another time or reason.",
    "maintenance.started": "Maintenance has begun; its GPUs take no bookings.",
    "maintenance.ended": "Maintenance is over.",
    "maintenance.cancelled": "Maintenance was cancelled before it began.",
    "outage.begun": "An outage of the portal was announced, or got another end.",
    "outage.closed": "Changes of members are refused until the outage of the portal is over.",
    "outage.ended": "An operator ended an outage of the portal.",
    "freeze.begun": "Decisions are frozen: nothing new starts.",
    "freeze.ended": "An operator ended a freeze of decisions.",
    "stop.begun": "New work of the site, a tenant, a tier or a GPU class was stopped.",
    "stop.ended": "An operator ended a stop of new work.",
}
"""Names and what they mean, in the order of a booking's life."""

SITE_GROUPS = ("node.", "gpu.", "policy.", "maintenance.", "outage.", "freeze.", "stop.")
"""Events of no tenant, which webhooks of the platform and of whole organisations get."""

SITE_TYPES = tuple(name for name in EVENT_TYPES if name.startswith(SITE_GROUPS))

# Kinds of the history whose public name differs.
_RENAMED = {"booking.pause_noticed": "booking.pause_notified"}


def event_type(kind: str) -> str | None:
    """Returns the public name of a kind of message; None if programs do not receive it."""
    name = _RENAMED.get(kind, kind)
    return name if name in EVENT_TYPES else None


def patterns_unknown(patterns: Iterable[str], names: Collection[str] = tuple(EVENT_TYPES)) -> list[str]:
    """Returns the patterns that match none of `names`."""
    return [each for each in patterns if not any(_matches(each, name) for name in names)]


def types_of(patterns: Iterable[str]) -> list[str]:
    """Returns the names that the patterns match."""
    wanted = list(patterns)
    return [name for name in EVENT_TYPES if is_wanted(wanted, name)]


def is_wanted(patterns: Sequence[str], name: str) -> bool:
    """Returns whether one of `patterns` matches the name: `booking.started`, `booking.*`, `*`."""
    return any(_matches(each, name) for each in patterns)


def _matches(pattern: str, name: str) -> bool:
    if pattern == "*":
        return True
    group, _, rest = pattern.partition(".")
    return name == pattern or (rest == "*" and name.startswith(f"{group}."))
