"""The sentences of events of the site: policy, maintenance, outages, freezes and stops."""

from typing import Any

from tenants.platform.nouns import Sentence

_SENTENCES: dict[str, Sentence] = {
    "policy": "Version %(number)s of the policy is live.",
    "maintenance_planned": "Maintenance of %(where)s is planned: %(reason)s.",
    "maintenance_changed": "Maintenance of %(where)s has another time or reason: %(reason)s.",
    "maintenance_started": "Maintenance of %(where)s has begun: %(reason)s.",
    "maintenance_ended": "Maintenance of %(where)s is over: %(reason)s.",
    "maintenance_cancelled": "Maintenance of %(where)s is cancelled: %(reason)s.",
    "outage_begun": "The outage of the portal has begun: %(why)s.",
    "outage_closed": "The outage of the portal has closed the portal to changes: %(why)s.",
    "outage_ended": "The outage of the portal has ended: %(why)s.",
    "freeze_begun": "The freeze of decisions has begun: %(why)s.",
    "freeze_ended": "The freeze of decisions has ended: %(why)s.",
    "stop_begun": "The stop of new work of %(of)s has begun: %(why)s.",
    "stop_ended": "The stop of new work of %(of)s has ended: %(why)s.",
}


def site_event_text(code: str, /, **facts: Any) -> str:  # noqa: ANN401 (facts of any kind)
    """Returns the sentence of an event. KeyError: no such event, or a fact is missing."""
    return str(_SENTENCES[code]) % facts
