"""What calendars add to the core: sentences and words of the log."""

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMELESS

sentences_add(
    {
        "unknown_calendar": "A calendar shows mine, project:SLUG or pool:CLASS.",
        "too_many_calendars": "You have %(most_feeds)s calendars. Revoke one you do not use.",
    }
)
ACTIONS["calendar.made"] = "created {object}"
ACTIONS["calendar.revoked"] = "revoked {object}"
NAMELESS["calendar"] = "a calendar address"
