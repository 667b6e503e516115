"""Builds mails: the outcome in the subject, a few sentences, and a link."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, tzinfo

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from allocation.features.insights.figures import Whose
from allocation.features.insights.monthly import KIND as MONTH
from allocation.features.insights.summary import summary_sentences
from allocation.features.reports.models import ReportSubscription
from allocation.features.reports.services import DUE, unsubscribe_token
from allocation.features.waiting_list.models import WaitOffer
from allocation.models import (
    Approval,
    Booking,
    BookingEvent,
    Override,
)
from allocation.queries.bookings.approvals import approvers_of
from allocation.queries.bookings.calendar import Event, booking_events, by_start
from allocation.queries.bookings.money.statement_files import StatementFile, statement_file_make
from allocation.queries.bookings.money.statements import StatementOf, statement_of
from allocation.rules.states import State
from allocation.web.approvals.cards import request_words
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.notice import Notice, notice_of
from allocation.web.home.calendar_file import calendar_file
from allocation.web.parts.times import clock, length_words
from billing.rules import Period, money_text
from portal.integrations.mail.queueing import PASSWORD_RESET
from portal.integrations.notifications.override_people import ASKED as OVERRIDE_ASKED
from portal.integrations.notifications.override_people import KINDS as OVERRIDE_KINDS
from portal.integrations.notifications.override_people import note_of
from portal.integrations.notifications.recipients import APPROVAL, OFFERED, SCHEDULED
from portal.integrations.notifications.words_of_payloads import words_of
from tenants.access import Actor, actor_by_id
from tenants.lab_queries import labs_led, projects_seen
from tenants.models import GpuClass, Mail, OutboxMessage, set_by_valid_token
from tenants.platform.errors import Refused
from tenants.queries import invitation_offer, invitations_by_id
from tenants.rules.notifications import OUTCOMES, TYPE_OF_KIND, WINDOW
from tenants.services.notifications import stop_token
from tenants.services.sign_in.mail_links import (
    RESET_LIFETIME,
    invitation_link_create,
    reset_link_create,
)
from tenants.services.sign_on.addresses import provider_addresses
from tenants.web.frame import zone_of
from tenants.web.parts import counted


@dataclass(frozen=True, slots=True)
class Attached:
    """A file of a mail."""

    name: str
    content_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a mail: a headline, sentences, the page that it is about, and its calendar entry.

    `ends` is the address that ends mails of this kind.
    """

    headline: str
    sentences: tuple[str, ...]
    href: str
    entry: Event | None = None
    link: str = "Open the booking"
    files: tuple[Attached, ...] = ()
    ends: str = ""


NOTICE = "booking.pause_noticed"


def section_of(mail: Mail, now: datetime) -> Section | None:
    """The section as of `now`; None when it is no longer true, such as a pause that is over."""
    if mail.booking is None or mail.user is None:
        return _about_account(mail, now)
    booking = Booking.objects.select_related("tenant", "tier").filter(id=mail.booking).first()
    if booking is None:
        return None
    zone = zone_of(mail.user.time_zone)
    scene = PageContext(now, zone, f"{settings.PUBLIC_URL}/t/{booking.tenant.slug}/", {})
    href = f"{scene.base}bookings/{booking.label}"
    title = " ".join((booking.name or booking.label).split())
    if mail.kind == NOTICE:
        return _notice(booking, title, href, scene)
    if mail.kind in (APPROVAL, OFFERED):
        is_offer = mail.kind == OFFERED
        return _offer(booking, title, scene) if is_offer else _approval(mail, booking, scene)
    event = BookingEvent.objects.filter(
        booking=booking, kind=mail.kind.removeprefix("booking."), at=mail.at
    ).first()
    if event is None:
        return None
    said = (event.text, *_new_start(event, zone), f"That was at {_moment(event.at, zone)}.")
    entry = next(booking_events(Booking.objects.filter(id=booking.id)), None)
    outcome = OUTCOMES[WINDOW if mail.kind == SCHEDULED and booking.waitlist else mail.kind]
    return Section(f"{title} {outcome}", said, href, entry)


def _offer(booking: Booking, title: str, scene: PageContext) -> Section | None:
    """The open offer of a booking; its page asks before anything is accepted."""
    offer = WaitOffer.objects.filter(booking=booking, state=WaitOffer.State.OPEN).first()
    if offer is None or offer.until <= scene.now:
        return None
    sentences = (
        f"The offer is for {_moment(offer.starts, scene.zone)} to {_moment(offer.ends, scene.zone)}.",
        f"It is kept for you until {_moment(offer.until, scene.zone)}; then others can get it.",
        "Nothing is booked or held before you accept it.",
    )
    href = f"{scene.base}offers"
    return Section(f"{title} is offered a place", sentences, href, link="Answer the offer")


def _approval(mail: Mail, booking: Booking, scene: PageContext) -> Section | None:
    """A request that the reader may decide; None once it is decided, or by others only."""
    rows = Approval.objects.select_related("booking__project", "booking__tier", "project", "asker")
    approval = rows.filter(booking=booking, state=Approval.State.OPEN).first()
    if approval is None or mail.user_id not in approvers_of(approval, scene.now):
        return None
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    request = request_words(approval, replace(scene, labels=labels))
    until = _moment(approval.decide_by, scene.zone)
    said = (*request.sentences, f"It expires on {until}. Opening the page decides nothing.")
    href = f"{scene.base}approvals/{approval.id}"
    return Section(f"{request.person} asks for an approval", said, href, link="Decide")


def _about_account(mail: Mail, now: datetime) -> Section | None:
    if mail.kind == PASSWORD_RESET:
        return _password_reset(mail, now)
    if mail.kind in OVERRIDE_KINDS:
        return _override(mail)
    if mail.kind == DUE:
        return report_section(mail)
    if mail.invitation is None:
        return _of_payload(mail) or _with_own_words(mail)
    return _invitation(mail, now) if mail.user else _invitation_to_address(mail, now)


def _of_payload(mail: Mail) -> Section | None:
    """What its message says; None after a week, when the message is deleted."""
    message = OutboxMessage.objects.filter(id=mail.message or 0).select_related("tenant").first()
    words = words_of(mail.kind, message.payload) if message else None
    if message is None or words is None or mail.tenant_id not in (None, message.tenant_id):
        return None
    if mail.tenant is None:
        # An operator need not be a member: only operators' pages show all organisations.
        if message.tenant is None:
            href = f"{settings.PUBLIC_URL}/ops/budgets/{message.payload['budget']}"
            return Section(words.headline, words.sentences, href, link=words.link)
        sentences = (f"{message.tenant.name}.", *words.sentences)
        href = f"{settings.PUBLIC_URL}/ops/disputes"
        return Section(words.headline, sentences, href, link="Answer it")
    href = f"{settings.PUBLIC_URL}/t/{mail.tenant.slug}/{words.path}"
    return Section(words.headline, words.sentences, href, link=words.link)


def _override(mail: Mail) -> Section | None:
    """A request for more than a limit allows, or its answer; None once it is decided."""
    message = OutboxMessage.objects.filter(id=mail.message or 0, tenant=mail.tenant).first()
    note = note_of(message) if message is not None else None
    if note is None or mail.user is None:
        return None
    said = [note.text]
    if note.until is not None:
        said.append(f"It ends on {_moment(note.until, zone_of(mail.user.time_zone))}.")
    is_operators = mail.kind == OVERRIDE_ASKED and note.row.decider == Override.Decider.OPERATOR
    page = "ops/overrides" if is_operators else f"t/{note.row.tenant.slug}/overrides"
    link = "Decide" if mail.kind == OVERRIDE_ASKED else "Open the exceptions"
    return Section(note.title, tuple(said), f"{settings.PUBLIC_URL}/{page}", link=link)


def _with_own_words(mail: Mail) -> Section | None:
    """A message that carries its words; None after a week, when it is deleted."""
    message = OutboxMessage.objects.filter(id=mail.message or 0).first()
    # A mail to operators has no tenant, whoever asks them.
    if message is None or mail.user is None or mail.tenant_id not in (None, message.tenant_id):
        return None
    said = message.payload
    if "text" not in said:
        return None
    sentences = [said["text"]]
    if said["until"]:
        until = datetime.fromisoformat(said["until"])
        sentences.append(f"By {_moment(until, zone_of(mail.user.time_zone))}.")
    path = f"/t/{mail.tenant.slug}/{said['path']}" if mail.tenant else said["path"]
    href = f"{settings.PUBLIC_URL}{path}"
    return Section(said["title"], tuple(sentences), href, link="Open the page", ends=_mails_end(mail))


def _mails_end(mail: Mail) -> str:
    """The address that ends mails which nobody has asked for; empty for others."""
    if mail.kind != MONTH or mail.tenant_id is None or mail.user_id is None:
        return ""
    token = stop_token(mail.tenant_id, mail.user_id, TYPE_OF_KIND[mail.kind].name)
    return f"{settings.PUBLIC_URL}/notifications/end/{token}"


def _password_reset(mail: Mail, now: datetime) -> Section | None:
    if mail.user is None or not mail.user.is_active:
        return None
    secret = reset_link_create(mail.user, now)
    until = _moment(now + RESET_LIFETIME, zone_of(mail.user.time_zone))
    said = (
        f"Somebody requested a new password for your account {mail.user.username}.",
        f"The link works once, until {until}. All browsers are then signed out.",
        "If you did not request it, ignore this mail: your password stays as it is.",
    )
    href = f"{settings.PUBLIC_URL}/password/{secret}"
    return Section("Choose a new password", said, href, link="Choose a new password")


def _invitation_to_address(mail: Mail, now: datetime) -> Section | None:
    """For an address without an account: a link with which the person creates one."""
    offer = invitation_offer(mail.invitation, now) if mail.invitation else None
    if offer is None:
        return None
    secret = invitation_link_create(offer.id, offer.expires)
    said = (
        f"{offer.inviter} invites you to become {offer.role_name} in {offer.place}.",
        "You create an account when you accept. Members there see your name only then.",
        f"The invitation expires on {_moment(offer.expires, zone_of('UTC'))}.",
    )
    href = f"{settings.PUBLIC_URL}/invitation/{secret}"
    return Section(f"You are invited to {offer.place}", said, href, link="Answer the invitation")


def _invitation(mail: Mail, now: datetime) -> Section | None:
    if mail.user is None:
        return None
    for offer in invitations_by_id(mail.user.pk, now):
        if offer.id == mail.invitation:
            said = (
                f"{offer.inviter} invites you to become {offer.role_name} in {offer.place}.",
                "Members there see your name once you accept, not before.",
                f"It expires on {_moment(offer.expires, zone_of(mail.user.time_zone))}.",
            )
            return Section(
                f"You are invited to {offer.place}",
                said,
                f"{settings.PUBLIC_URL}/account",
                link="Answer the invitation",
            )
    return None


def _address(mail: Mail) -> str:
    """The address of the account, or the one that the tenant's provider has verified."""
    if mail.user is None:
        return mail.address
    if mail.user.email or mail.tenant_id is None:
        return mail.user.email
    place = (mail.tenant_id, mail.user.pk)
    return provider_addresses([place]).get(place, "")


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
        to=[_address(mails[0])],
        # Suppresses automatic replies, and lets mail programs detect a repeated mail.
        headers={
            "Auto-Submitted": "auto-generated",
            "Message-ID": f"<{mails[0].id}.{mails[0].message or 0}@{settings.PUBLIC_HOST}>",
        },
    )
    ending = next((note.ends for note in notes if note.ends), "")
    if ending:
        # Mail programs show a button for it (RFC 8058).
        letter.extra_headers["List-Unsubscribe"] = f"<{ending}>"
        letter.extra_headers["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    for note in notes:
        for each in note.files:
            letter.attach(each.name, each.content, each.content_type)
    letter.attach_alternative(render_to_string("mail/letter.html", context), "text/html")
    entries = {note.entry.uid: note.entry for note in notes if note.entry is not None}
    if entries:
        body = calendar_file("GPU bookings", by_start(entries.values()), _tenant_slug(mails[0]))
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


def _new_start(event: BookingEvent, zone: tzinfo) -> Iterator[str]:
    """Yields the new range of a planned start that is later now, with the one before."""
    if event.starts is None or event.latest is None or event.was is None:
        return
    latest, before = _latest_words(event.latest, event.starts, zone), _moment(event.was, zone)
    before += _latest_words(event.was_latest or event.was, event.was, zone)
    yield f"It is now expected at {_moment(event.starts, zone)}{latest}; before, it was {before}."


def _latest_words(latest: datetime, earliest: datetime, zone: tzinfo) -> str:
    """Returns ` to Sat 21 Nov 16:30 +0100`; empty for a start without a range."""
    return f" to {_moment(latest, zone)}" if latest > earliest else ""


def _moment(moment: datetime, zone: tzinfo) -> str:
    """`Sat 21 Nov 10:32 +0100`, because a mail may be read on another day, in another zone."""
    local = moment.astimezone(zone)
    return f"{local:%a} {local.day} {local:%b %H:%M %z}"


def _settings_page(mail: Mail) -> str:
    """The page of the person's settings; empty without an account."""
    if mail.user is None:
        return ""
    if mail.tenant is None or mail.invitation is not None:
        # An invited person is no member yet, so has no settings in the tenant.
        return f"{settings.PUBLIC_URL}/account"
    return f"{settings.PUBLIC_URL}/t/{mail.tenant.slug}/settings"


def _tenant_slug(mail: Mail) -> str:
    return mail.tenant.slug if mail.tenant else ""


# Mail servers refuse large mails; a larger file is behind the link.
LARGEST = 5 * 1024 * 1024


def report_section(mail: Mail) -> Section | None:
    """The statement of a subscription, as the person may see it now; None when it has ended."""
    message = OutboxMessage.objects.filter(id=mail.message or 0, tenant=mail.tenant).first()
    if message is None or mail.user_id is None or mail.tenant is None:
        return None
    said = message.payload
    made = set_by_valid_token(timezone.now())
    row = ReportSubscription.objects.filter(made, id=said["report"], user=mail.user_id)
    found = row.select_related("project", "lab", "tenant").first()
    words = words_of(mail.kind, said)
    if found is None or words is None or not _may_see(found, mail.user_id):
        return None
    days = Period(date.fromisoformat(said["starts"]), date.fromisoformat(said["ends"]))
    of = StatementOf(found.tenant_id, days, found.project, found.lab)
    # One transaction: the sums and the lines are of the same moment.
    with transaction.atomic():
        statement, file = statement_of(of), statement_file_make(of, found.tenant, found.format)
    total = money_text(statement.totals.amount, statement.currency)
    files = _attached(file)
    sentences = (
        f"{total} in {counted(statement.totals.lines, 'line')}.",
        *summary_sentences(Whose(found.tenant_id, of), days),
        "The file is attached." if files else "The file is too large for a mail; the page has it.",
    )
    base = settings.PUBLIC_URL
    return Section(
        words.headline,
        sentences,
        f"{base}/t/{found.tenant.slug}/{words.path}",
        link=words.link,
        files=files,
        ends=f"{base}/reports/end/{unsubscribe_token(found)}",
    )


def _may_see(row: ReportSubscription, user_id: int) -> bool:
    try:
        actor: Actor = actor_by_id(user_id, row.tenant.slug)
    except Refused:
        return False
    led = labs_led(actor)
    if row.project_id is not None:
        return projects_seen(actor, led).filter(id=row.project_id).exists()
    return actor.is_tenant_admin or row.lab_id in led


def _attached(file: StatementFile) -> tuple[Attached, ...]:
    with file.content as content:
        if file.size > LARGEST:
            return ()
        content_type = file.content_type.partition(";")[0]
        return (Attached(file.name, content_type, content.read()),)
