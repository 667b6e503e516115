"""The catalogue of notifications to people, and when their mails are due. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from typing import Any, Literal, get_args

MailChoice = Literal["now", "daily", "never"]
MAIL_CHOICES: Mapping[MailChoice, str] = {"now": "At once", "daily": "Once a day", "never": "Never"}

# Mails that can wait do so for this long, so that related ones are sent as one.
BUNDLING_DELAY = timedelta(minutes=2)

# A booking that was on the waiting list is scheduled: the same event, another row of preferences.
WINDOW = "booking.window_given"


@dataclass(frozen=True, slots=True)
class NotificationType:
    """A row of a person's preferences. `outcomes` maps kinds of messages to a headline's end.

    `mail` and `chat` are the defaults; messages go to chat only if the person has a channel.
    """

    name: str
    label: str
    about: str
    outcomes: Mapping[str, str]
    mail: MailChoice = "now"
    is_optional: bool = True
    in_app: bool = True
    chat: bool = True


NOTIFICATION_TYPES = (
    NotificationType(
        "pause",
        "Pause notices",
        "A booking is to be paused, or is not any more. Always in the inbox.",
        {
            "booking.pause_noticed": "is to be paused",
            "booking.pause_withdrawn": "continues, its pause was withdrawn",
        },
        is_optional=False,
    ),
    NotificationType(
        "no_show",
        "Unused bookings",
        "Nobody uses the GPUs, so the booking ends or pauses soon. Always in the inbox.",
        {
            "booking.no_show_warned": "is not used yet",
            "booking.no_show": "was ended: nobody used it",
            "booking.idle_warned": "has idle GPUs",
            "booking.idle_ended": "was ended: its GPUs were idle",
        },
        is_optional=False,
    ),
    NotificationType(
        "booked",
        "Booked, changed, cancelled",
        "A booking got its GPUs and its time, or they changed. Its mail has a calendar entry.",
        {
            "booking.scheduled": "is booked",
            "booking.changed": "was changed",
            "booking.cancelled": "was cancelled",
        },
        mail="never",
        in_app=False,
        chat=False,
    ),
    NotificationType(
        "ending",
        "Ends in 30 minutes",
        "A running booking ends soon; it can be extended if its GPUs are free.",
        {"booking.ends_soon": "ends in 30 minutes"},
        mail="never",
    ),
    NotificationType(
        "start",
        "Starts",
        "The GPUs are handed over.",
        {"booking.started": "has started"},
        mail="never",
    ),
    NotificationType(
        "plan",
        "Later starts",
        "The planned start is later than the range that was announced.",
        {"booking.delayed": "starts later than planned"},
    ),
    NotificationType(
        "run",
        "Paused and resumed",
        "A pause has begun or is over.",
        {"booking.paused": "is paused", "booking.resumed": "runs again"},
    ),
    NotificationType(
        "hardware",
        "Hardware and maintenance",
        "A node failed, or has to be left by a time.",
        {
            "booking.broken_off": "lost its place and gets another",
            "booking.leave_by": "has to make way for maintenance",
            "booking.replaced": "lost its GPUs and waits for others",
            "booking.failed": "failed",
        },
    ),
    NotificationType(
        "refused",
        "Refused or expired",
        "A booking was refused, or no GPUs were free in time.",
        {"booking.refused": "got no place", "booking.expired": "expired without a place"},
    ),
    NotificationType(
        "array",
        "Arrays",
        "An array has begun or is over, or elements of it failed.",
        {
            "booking.array_started": "has started its first element",
            "booking.array_failures": "has failed elements",
            "booking.array_ended": "has ended its last element",
        },
    ),
    NotificationType(
        "waitlist",
        "Waiting list",
        "A place is offered to a booking, or it got the window that it has waited for.",
        {
            "booking.offered": "is offered a place",
            WINDOW: "got the window that it waited for",
        },
    ),
    NotificationType(
        "hand_over",
        "Hand-overs",
        "A booking is offered to you, or an offer of yours has an answer or expired.",
        {
            "hand_over.offered": "is offered",
            "hand_over.accepted": "has another owner",
            "hand_over.declined": "was declined",
            "hand_over.withdrawn": "is not offered any more",
            "hand_over.expired": "has an offer that expired",
        },
    ),
    NotificationType(
        "approval",
        "Decisions on your requests",
        "A booking of yours was approved or declined.",
        {
            "booking.approved": "was approved",
            "booking.declined": "was declined",
            "booking.approval_expired": "was not approved in time",
            "booking.countered": "got a counter-offer",
        },
    ),
    NotificationType(
        "to_approve",
        "Requests to decide",
        "A booking waits for your approval.",
        {"booking.approval_requested": "waits for your approval"},
    ),
    NotificationType(
        "limits",
        "Exceptions from limits",
        "Somebody asks you for more than a limit allows, or a request or exception of yours was "
        "decided or ends within a week.",
        {
            "override.asked": "is asked for",
            "override.granted": "is granted",
            "override.declined": "is declined",
            "override.ending": "ends within a week",
        },
    ),
    NotificationType(
        "appeal",
        "Contested pauses",
        "Somebody contests a pause and you answer, or your own objection has an answer.",
        {"appeal.raised": "is contested", "appeal.answered": "has an answer"},
    ),
    NotificationType(
        "budget",
        "Budgets",
        "A budget that you lead or administer has reached a threshold.",
        {"budget.threshold_reached": "has reached a threshold"},
    ),
    NotificationType(
        "dispute",
        "Disputes of statements",
        "A statement that concerns you is disputed, or an operator has answered.",
        {"dispute.raised": "is disputed", "dispute.answered": "has an answer"},
    ),
    NotificationType(
        "variance",
        "Unusual spend",
        "The spend of a project or campaign differs from its plan or its usual days.",
        {"budget.variance": "differs from what is usual"},
    ),
    NotificationType(
        "report",
        "Reports",
        "A statement that you get regularly is ready.",
        {"report.due": "is ready"},
    ),
    NotificationType(
        "figures",
        "Figures of a month",
        "What the GPUs of your organisation, lab or project did in the last month: for leads and admins.",
        {"figures.month": "is over"},
        mail="daily",
        chat=False,
    ),
    NotificationType(
        "policy_hook",
        "Policy hook",
        "The policy hook of an organisation that you administer fails.",
        {"policy_hook.failing": "fails"},
    ),
    NotificationType(
        "access",
        "Access of operators",
        "An operator reads the data of an organisation that you administer.",
        {"access.opened": "is read by an operator"},
        is_optional=False,
    ),
    NotificationType(
        "token",
        "Expiring tokens",
        "An API token of yours expires within a week.",
        {"token.expiring": "expires soon"},
        chat=False,
    ),
    NotificationType(
        "training",
        "Training and texts that run out",
        "A training of yours, or your acceptance of a text, runs out in 14 or 3 days.",
        {"requirement.expiring": "runs out soon"},
        chat=False,
    ),
    NotificationType(
        "webhook",
        "Failing webhooks",
        "A webhook that you made was switched off, because nothing could be delivered.",
        {"webhook.failing": "was switched off"},
        chat=False,
    ),
    NotificationType(
        "announcement",
        "Announcements",
        "The platform's operators announce something, such as maintenance.",
        {"announcement.published": "was announced"},
        mail="never",
        chat=False,
    ),
    NotificationType(
        "message",
        "Messages of operators",
        "The platform's operators wrote to you about a booking.",
        {
            "booking.message": "has a message from the operators",
            "booking.release_asked": "should be released, an operator asks",
        },
    ),
)
TYPES: Mapping[str, NotificationType] = {each.name: each for each in NOTIFICATION_TYPES}
OUTCOMES: Mapping[str, str] = {
    kind: outcome for each in NOTIFICATION_TYPES for kind, outcome in each.outcomes.items()
}
TYPE_OF_KIND: Mapping[str, NotificationType] = {
    kind: each for each in NOTIFICATION_TYPES for kind in each.outcomes
}
# A countdown runs: these mails are sent at once and alone, in quiet hours, too.
URGENT = frozenset(
    {
        "booking.pause_noticed",
        "booking.pause_withdrawn",
        "booking.no_show_warned",
        "booking.idle_warned",
        "booking.offered",
    }
)

# Of the elements of an array only these are notified: an array has notifications of its own.
OF_ELEMENTS = URGENT.union(*(TYPES[name].outcomes for name in ("array", "approval", "to_approve", "message")))


@dataclass(frozen=True, slots=True)
class Choice:
    """How a person wants to be notified of one type."""

    in_app: bool
    mail: MailChoice
    chat: bool = True


@dataclass(frozen=True, slots=True)
class MailTimes:
    """A person's quiet hours and the time of their daily mail, in their time zone."""

    quiet_from: time | None = None
    quiet_until: time | None = None
    daily_at: time = time(8)


def choice_of(stored: Mapping[str, Any], name: str) -> Choice:
    """Returns the choice for a type, from a stored mapping of those that were made."""
    kind, chosen = TYPES[name], stored.get(name, {})
    in_app = chosen.get("in_app", kind.in_app) or not kind.is_optional
    mail = chosen.get("mail", kind.mail)
    chat = bool(chosen.get("chat", kind.chat))
    return Choice(in_app, mail if mail in get_args(MailChoice) else kind.mail, chat)


def mail_due(
    now: datetime, zone: tzinfo, choice: MailChoice, times: MailTimes, *, can_wait: bool
) -> datetime | None:
    """Returns when a mail is due; None if it is not wanted.

    A mail that can't wait is due now, whatever the quiet hours are.
    """
    if choice == "never":
        return None
    if not can_wait:
        return now
    if choice == "daily":
        return _out_of_quiet(_next(now, zone, times.daily_at), zone, times)
    return _out_of_quiet(now + BUNDLING_DELAY, zone, times)


def _out_of_quiet(due: datetime, zone: tzinfo, times: MailTimes) -> datetime:
    """The time itself, or the end of the quiet hours that it is in."""
    start, end = times.quiet_from, times.quiet_until
    if start is None or end is None:
        return due
    clock = due.astimezone(zone).time().replace(fold=0)
    is_quiet = start <= clock < end if start < end else clock >= start or clock < end
    return _next(due, zone, end) if is_quiet else due


def _next(after: datetime, zone: tzinfo, clock: time) -> datetime:
    """The first moment after `after` at which a clock in the zone shows `clock`."""
    local = after.astimezone(zone)
    for days in (0, 1, 2):
        day = local.date() + timedelta(days=days)
        found = datetime.combine(day, clock, zone).astimezone(after.tzinfo)
        if found > after:
            return found
    raise ValueError(f"no {clock} within two days of {after}")
