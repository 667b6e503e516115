"""Builds mails: the outcome in the subject, a few sentences, and a link."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

from allocation.models import Booking, BookingEvent
from allocation.queries.bookings.calendar import Event, booking_events, by_start
from allocation.rules.states import State
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pause_notice import Notice, notice_of
from allocation.web.home.calendar_file import calendar_file
from allocation.web.parts.times import clock, length_words
from tenants.models import Mail
from tenants.queries import invitations_by_id
from tenants.web.frame import zone_of

NOTICE = "booking.pause_noticed"
OUTCOMES = {
    "booking.pause_withdrawn": "continues, its pause was withdrawn",
    "booking.paused": "is paused",
    "booking.resumed": "runs again",
    "booking.broken_off": "lost its place and gets another",
    "booking.leave_by": "has to make way for maintenance",
    "booking.replaced": "starts again elsewhere",
    "booking.refused": "got no place",
    "booking.expired": "ran out of time",
    "booking.failed": "failed",
    "booking.no_show_warned": "is not used yet",
    "booking.no_show": "was ended: nobody used it",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a mail: a headline, sentences, the booking's page, and its calendar entry."""

    headline: str
    sentences: tuple[str, ...]
    href: str
    entry: Event | None = None


def section_of(mail: Mail, now: datetime) -> Section | None:
    """The section as of `now`; None when it is no longer true, such as a pause that is over."""
    if mail.booking is None:
        return _invitation(mail, now)
    booking = Booking.objects.select_related("tenant", "tier").filter(id=mail.booking).first()
    if booking is None:
        return None
    zone = zone_of(mail.user.time_zone)
    scene = PageContext(now, zone, f"{settings.PUBLIC_URL}/t/{booking.tenant.slug}/", {})
    href = f"{scene.base}bookings/{booking.label}"
    title = " ".join((booking.name or booking.label).split())
    if mail.kind == NOTICE:
        return _notice(booking, title, href, scene)
    event = BookingEvent.objects.filter(
        booking=booking, kind=mail.kind.removeprefix("booking."), at=mail.at
    ).first()
    if event is None:
        return None
    said = (event.text, f"That was at {_moment(event.at, zone)}.")
    entry = next(booking_events(Booking.objects.filter(id=booking.id)), None)
    return Section(f"{title} {OUTCOMES[mail.kind]}", said, href, entry)


def _invitation(mail: Mail, now: datetime) -> Section | None:
    for offer in invitations_by_id(mail.user_id, now):
        if offer.id == mail.invitation:
            said = (
                f"{offer.inviter} invites you to become {offer.role_name} in {offer.place}.",
                "Members there see your name once you accept, not before.",
                f"It expires on {_moment(offer.expires, zone_of(mail.user.time_zone))}.",
            )
            return Section(
                f"You are invited to {offer.place}", said, f"{settings.PUBLIC_URL}/account"
            )
    return None


def email_of(mails: Sequence[Mail], notes: Sequence[Section]) -> EmailMultiAlternatives:
    """One mail with all the sections, to the person of the first of `mails`.

    Raises ValueError without a section.
    """
    if not notes:
        raise ValueError("a mail needs at least one section")
    more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
    context = {"notes": notes, "settings": _settings_page(mails[0])}
    letter = EmailMultiAlternatives(
        subject=f"{notes[0].headline}{more}",
        body=render_to_string("mail/letter.txt", context),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[mails[0].user.email],
        # Suppresses automatic replies, and lets mail programs detect a repeated mail.
        headers={
            "Auto-Submitted": "auto-generated",
            "Message-ID": f"<{mails[0].id}.{mails[0].message}@{settings.PUBLIC_HOST}>",
        },
    )
    letter.attach_alternative(render_to_string("mail/letter.html", context), "text/html")
    entries = {note.entry.uid: note.entry for note in notes if note.entry is not None}
    if entries:
        body = calendar_file("GPU bookings", by_start(entries.values()), mails[0].tenant.slug)
        letter.attach("bookings.ics", body.decode(), "text/calendar")
    return letter


def _notice(booking: Booking, title: str, href: str, scene: PageContext) -> Section | None:
    pause = booking.pauses.order_by("number").last()
    if booking.state != State.PAUSING or pause is None or not pause.is_open:
        return None
    notice: Notice = notice_of(booking, pause, scene)
    at, left = clock(pause.deadline, scene.zone), length_words(notice.left // 60 * 60)
    when = f"pauses at {at} (in {left})" if notice.left >= 60 else f"pauses now ({at})"
    deadline = f"It has until {_moment(pause.deadline, scene.zone)}."
    said = (notice.who, notice.why, deadline, notice.lost, notice.default, notice.money)
    return Section(f"{title} {when}", tuple(filter(None, said)), href)


def _moment(moment: datetime, zone: tzinfo) -> str:
    """`Sat 21 Nov 10:32 +0100`, because a mail may be read on another day, in another zone."""
    local = moment.astimezone(zone)
    return f"{local:%a} {local.day} {local:%b %H:%M %z}"


def _settings_page(mail: Mail) -> str:
    if mail.invitation is not None:
        # An invited person is no member yet, so has no settings in the tenant.
        return f"{settings.PUBLIC_URL}/account"
    return f"{settings.PUBLIC_URL}/t/{mail.tenant.slug}/settings"
