"""Sends queued mails: each is claimed first, so that two senders never send the same."""

import logging
import smtplib
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.core.mail import get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage
from django.db import transaction
from django.db.models import Q

from allocation.features.reports.services import DUE
from portal.integrations.mail.message import email_of, section_of
from portal.integrations.mail.queueing import PASSWORD_RESET
from tenants.failures import FailureLog
from tenants.models import Mail
from tenants.rules.notifications import URGENT

logger = logging.getLogger(__name__)

QUEUE = "mails"
WAITING = Q(sent=None, dropped="")
# Twelve tries with delays of 1, 2, 4 … minutes, up to an hour: about six hours in all.
MAX_TRIES = 12
MAX_RETRY_DELAY = timedelta(hours=1)
# Errors of a single mail, such as a bad address; the server itself works.
_MESSAGE_ERRORS = (
    smtplib.SMTPRecipientsRefused,
    smtplib.SMTPDataError,
    smtplib.SMTPSenderRefused,
    ValueError,
)
# Mails that are sent alone: a countdown runs, or they have an address that ends them.
ALONE = URGENT | {PASSWORD_RESET, DUE}
# Bounds the time of one task; the next one sends the rest.
EMAILS_PER_RUN = 100
# Settled mails are kept this long for questions.
RETENTION = timedelta(days=30)


def mails_send(now: datetime) -> int:
    """Sends the mails that are due; returns how many. Any number of senders may run.

    A try is counted before it is made, so a mail that crashes its sender is given up in the end.
    Tries are not counted while the mail server does not answer.
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
    """Removes mails that were settled long ago; returns how many."""
    return Mail.objects.filter(~WAITING, at__lt=now - RETENTION).delete()[0]


def _claim(now: datetime) -> list[Mail]:
    """Claims one urgent mail, or all due mails of one person in one tenant, and counts the try."""
    with transaction.atomic():
        due = Mail.objects.select_for_update(skip_locked=True, of=("self",)).filter(WAITING, due__lte=now)
        first = due.order_by("due", "id").first()
        if first is None:
            return []
        found = [first]
        if first.kind not in ALONE and first.user_id is not None:
            mine = due.filter(user=first.user_id, tenant=first.tenant_id).exclude(kind__in=ALONE)
            found = list(mine.select_related("user", "tenant").order_by("id"))
        for mail in found:
            mail.tries += 1
            mail.due = now + min(timedelta(minutes=2 ** min(mail.tries - 1, 6)), MAX_RETRY_DELAY)
        Mail.objects.bulk_update(found, ["tries", "due"])
    return found


def _send_all(server: BaseEmailBackend, now: datetime) -> int:
    """Raises smtplib.SMTPException or OSError when the server stops answering."""
    failures = FailureLog(QUEUE, now, raised=(smtplib.SMTPException, OSError))
    letters = 0
    while letters < EMAILS_PER_RUN and (mails := _claim(now)):
        letters += _send_apart(server, mails, failures, now)
    return letters


def _send_apart(server: BaseEmailBackend, mails: Sequence[Mail], failures: FailureLog, now: datetime) -> int:
    """Sends the mails in one letter, or each alone if one of them fails; returns how many letters
    were sent."""
    sent: list[int] = []
    error = failures.attempt(lambda: sent.append(_send_or_drop(server, mails, now)))
    if error is None:
        failures.clear(*(mail.id for mail in mails))
        return sum(sent)
    return sum(_send_alone(server, mail, failures, now) for mail in mails)


def _send_alone(server: BaseEmailBackend, mail: Mail, failures: FailureLog, now: datetime) -> int:
    sent: list[int] = []
    failures.handle(
        mail.id,
        lambda: sent.append(_send_or_drop(server, [mail], now)),
        tenant_id=mail.tenant_id,
    )
    return sum(sent)


def _send_or_drop(server: BaseEmailBackend, mails: Sequence[Mail], now: datetime) -> int:
    """Raises smtplib.SMTPException or OSError when the server stops answering."""
    try:
        return _send(server, mails, now)
    except _MESSAGE_ERRORS as error:
        _refused(mails, error)
        return 0


def _send(server: BaseEmailBackend, mails: Sequence[Mail], now: datetime) -> int:
    notes = {mail.id: section_of(mail, now) for mail in mails}
    over = [mail.id for mail in mails if notes[mail.id] is None]
    Mail.objects.filter(id__in=over).update(dropped="No longer true when it was due.")
    current = [mail for mail in mails if mail.id not in over]
    if not current:
        return 0
    letter: EmailMessage = email_of(current, [note for note in notes.values() if note is not None])
    server.send_messages([letter])
    Mail.objects.filter(id__in=[mail.id for mail in current]).update(sent=now)
    return 1


def _refused(mails: Sequence[Mail], error: Exception) -> None:
    """Drops mails that the server rejects for good; others are retried. Logs no address."""
    code = _code(error)
    words = f"{type(error).__name__} {code or ''}".strip()
    if code is None or code >= 500:
        ids = [mail.id for mail in mails]
        Mail.objects.filter(id__in=ids).update(dropped=f"Rejected: {words}.")
    logger.warning("A mail was rejected: %s", words)


def _code(error: Exception) -> int | None:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return max((code for code, _ in error.recipients.values()), default=None)
    return error.smtp_code if isinstance(error, smtplib.SMTPResponseException) else None
