"""What reports add to the core: a task, sentences and words."""

from allocation.features.reports.tasks import allocation_reports
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS

__all__ = ["allocation_reports"]
sentences_add(
    {
        "too_many_reports": "A person can have %(most)s reports. End one first.",
        "report_recipients": "Only leads of the project and organisation admins send its reports to others.",
        "report_exists": "This report is sent already. End it to choose another time.",
    }
)
ACTIONS["report.subscribe"] = "gets a statement by mail"
ACTIONS["report.unsubscribe"] = "gets a statement by mail no more"
