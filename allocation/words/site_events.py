"""The sentences of events of the site: policy, maintenance, outages, freezes and stops."""

from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

_SENTENCES: dict[str, Promise] = {
    "policy": gettext_lazy("Version %(number)s of the policy is live."),
    "maintenance_planned": gettext_lazy("Maintenance of %(where)s is planned: %(reason)s."),
    "maintenance_changed": gettext_lazy("Maintenance of %(where)s has another time or reason: %(reason)s."),
    "maintenance_started": gettext_lazy("Maintenance of %(where)s has begun: %(reason)s."),
    "maintenance_ended": gettext_lazy("Maintenance of %(where)s is over: %(reason)s."),
    "maintenance_cancelled": gettext_lazy("Maintenance of %(where)s is cancelled: %(reason)s."),
    "outage_begun": gettext_lazy("The outage of the portal has begun: %(why)s."),
    "outage_closed": gettext_lazy("The outage of the portal has closed the portal to changes: %(why)s."),
    "outage_ended": gettext_lazy("The outage of the portal has ended: %(why)s."),
    "freeze_begun": gettext_lazy("The freeze of decisions has begun: %(why)s."),
    "freeze_ended": gettext_lazy("The freeze of decisions has ended: %(why)s."),
    "stop_begun": gettext_lazy("The stop of new work of %(of)s has begun: %(why)s."),
    "stop_ended": gettext_lazy("The stop of new work of %(of)s has ended: %(why)s."),
}


def site_event_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of an event. KeyError: no such event, or a fact is missing."""
    return str(_SENTENCES[code]) % facts
