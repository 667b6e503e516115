"""Mails of reports: the statement as a file, and the address that ends them."""

from datetime import date

from django.conf import settings
from django.db import transaction

from allocation.models import ReportSubscription
from allocation.queries.bookings.money.statement_files import StatementFile, statement_file_make
from allocation.queries.bookings.money.statements import StatementOf, statement_of
from allocation.services.operate.reports import unsubscribe_token
from billing.rules import Period, money_text
from portal.integrations.mail.sections import Attached, Section
from portal.integrations.notifications.words_of_payloads import words_of
from tenants.access import Actor, actor_by_id
from tenants.models import Mail, OutboxMessage
from tenants.platform.errors import Refused

# Mail servers refuse large mails; a larger file is behind the link.
LARGEST = 5 * 1024 * 1024


def report_section(mail: Mail) -> Section | None:
    """The statement of a subscription, as the person may see it now; None when it has ended."""
    message = OutboxMessage.objects.filter(id=mail.message or 0, tenant=mail.tenant).first()
    if message is None or mail.user_id is None or mail.tenant is None:
        return None
    said = message.payload
    row = ReportSubscription.objects.filter(id=said["report"], user=mail.user_id)
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
        f"{total} in {statement.totals.lines:,} lines.",
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
    if row.project_id is None:
        return actor.is_tenant_admin
    return actor.role_in(row.project_id) is not None


def _attached(file: StatementFile) -> tuple[Attached, ...]:
    with file.content as content:
        if file.size > LARGEST:
            return ()
        content_type = file.content_type.partition(";")[0]
        return (Attached(file.name, content_type, content.read()),)
