"""What exports add to the core: files on the page of a statement, a task and sentences."""

from django.utils import timezone

from allocation.features.exports.models import StatementExport
from allocation.features.exports.services import DIRECT_LINES, exports_seen
from allocation.features.exports.tasks import allocation_exports
from allocation.points.statements import STATEMENT_FILES, MadeFile, MadeFiles
from allocation.queries.bookings.money.statements import Statement
from allocation.words.refusals import sentences_add
from tenants.access import Actor

__all__ = ["allocation_exports"]


def _files(actor: Actor, statement: Statement) -> MadeFiles | None:
    of = statement.of
    if of.lab is not None:
        return None
    rows = exports_seen(actor).filter(month=of.month.starts, project=of.project)
    route = "export-new" if statement.totals.lines > DIRECT_LINES else ""
    return MadeFiles(route, [MadeFile(row.id, row.get_kind_display(), _state(row)) for row in rows])


def _state(row: StatementExport) -> str:
    if row.finished_at is None:
        return f"{row.percent} % written"
    ready = f"ready since {timezone.localtime(row.finished_at):%H:%M}"
    return ready if row.state == "ready" else "could not be made"


STATEMENT_FILES.append(_files)
sentences_add(
    {
        "unknown_file": "Choose one of: %(files)s.",
        "too_many_exports": "%(most_open)s of your files are being made. Wait until one of them is ready.",
        "export_failed": "This file could not be made. Ask for it again.",
        "export_unfinished": "Lines written so far: %(lines_done)s of %(lines)s. Ask again later.",
    }
)
