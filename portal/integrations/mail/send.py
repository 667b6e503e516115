"""Sends what people are owed: claimed first, so that two senders never send the same."""

import logging
import smtplib
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.core.mail import get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage
from django.db import transaction
from django.db.models import Q

from portal.integrations.mail.message import email_of, section_of
from portal.integrations.mail.queueing import URGENT
from tenants.models import Mail

logger = logging.getLogger(__name__)

WAITING = Q(sent=None, dropped="")
# Twelve tries, a minute, two, four ... up to an hour apart: about six hours.
MAX_TRIES = 12
MAX_RETRY_DELAY = timedelta(hours=1)
# The server is there and does not want this one, or it can't even be written down: a bad address.
_MESSAGE_ERRORS = (
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPSenderRefused,
    ValueError,
)
# A run is a task with an end; what is left is for the next.
EMAILS_PER_RUN = 100
# Kept for questions, then removed.
RETENTION = timedelta(days=30)


def mails_send(now: datetime) -> int:
    """Sends what is due; returns how many letters. Any number of senders may run.

    Each mail is tried again later, counted before it is tried, so that one that ends its sender
    can't do so for ever. While no server answers nothing is counted.
    """
    worn_out = Mail.objects.filter(WAITING, due__lte=now, tries__gte=MAX_TRIES)
    worn_out.update(dropped="Tried too often.")
    if not Mail.objects.filter(WAITING, due__lte=now).exists():
        return 0
    try:
        with get_connection() as server:
            return _send_all(server, now)
    except (smtplib.SMTPException, OSError) as error:
        logger.warning("The mail server does not answer: %s", type(error).__name__)
        return 0


def mails_sweep(now: datetime) -> int:
    """Removes what was settled long ago; returns how many."""
    return Mail.objects.filter(~WAITING, at__lt=now - RETENTION).delete()[0]


def _claim(now: datetime) -> list[Mail]:
    """The next person's due mails of one tenant, or one that is urgent; put off before tried."""
    with transaction.atomic():
        due = Mail.objects.select_for_update(skip_locked=True, of=("self",)).filter(
            WAITING, due__lte=now
        )
        first = due.order_by("due", "id").first()
        if first is None:
            return []
        found = [first]
        if first.kind not in URGENT:
            mine = due.filter(user=first.user_id, tenant=first.tenant_id).exclude(kind__in=URGENT)
            found = list(mine.select_related("user", "tenant").order_by("id"))
        for mail in found:
            mail.tries += 1
            mail.due = now + min(timedelta(minutes=2 ** min(mail.tries - 1, 6)), MAX_RETRY_DELAY)
        Mail.objects.bulk_update(found, ["tries", "due"])
    return found


def _send_all(server: BaseEmailBackend, now: datetime) -> int:
    """Raises smtplib.SMTPException or OSError when the server went away."""
    letters = 0
    while letters < EMAILS_PER_RUN and (mails := _claim(now)):
        try:
            letters += _send(server, mails, now)
        except _MESSAGE_ERRORS as error:
            _refused(mails, error)
    return letters


def _send(server: BaseEmailBackend, mails: Sequence[Mail], now: datetime) -> int:
    notes = {mail.id: section_of(mail, now) for mail in mails}
    over = [mail.id for mail in mails if notes[mail.id] is None]
    Mail.objects.filter(id__in=over).update(dropped="No longer true when it was due.")
    told = [mail for mail in mails if mail.id not in over]
    if not told:
        return 0
    letter: EmailMessage = email_of(told, [note for note in notes.values() if note is not None])
    server.send_messages([letter])
    Mail.objects.filter(id__in=[mail.id for mail in told]).update(sent=now)
    return 1


def _refused(mails: Sequence[Mail], error: Exception) -> None:
    """Drops what will never be taken; the rest is tried again. No address is logged."""
    code = _code(error)
    words = f"{type(error).__name__} {code or ''}".strip()
    if code is None or code >= 500:
        ids = [mail.id for mail in mails]
        Mail.objects.filter(id__in=ids).update(dropped=f"Not taken: {words}.")
    logger.warning("A mail was not taken: %s", words)


def _code(error: Exception) -> int | None:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return max((code for code, _ in error.recipients.values()), default=None)
    return error.smtp_code if isinstance(error, smtplib.SMTPResponseException) else None
