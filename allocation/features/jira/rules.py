"""Messages of Jira: what they say, whether they are fresh, and the texts made of them. Pure."""

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from tenants.platform.coded import CodedError

# A clock may be off by so much, and a program has to send its message within it.
SKEW = timedelta(minutes=5)
# Jira sends a message again with the time of the first attempt.
RESEND_PERIOD = timedelta(hours=24)
KEY = re.compile(r"([A-Z][A-Z0-9_]{1,19})-([1-9][0-9]{0,11})")
PROJECT_KEY = re.compile(r"[A-Z][A-Z0-9_]{1,19}")
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,59})\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_SPRINT_EVENTS = {"sprint_started": "sprint_started", "sprint_closed": "sprint_closed"}
_ISSUE_EVENTS = ("jira:issue_created", "jira:issue_updated")
VALUE_LENGTH_MAX = 300
FIELDS_MAX = 500


class BadMessage(CodedError):
    """A message that cannot be read; the text is a sentence for people."""


# The years in which a message, a sprint or a booking can be.
EARLIEST, LATEST = 2000, 2100


@dataclass(frozen=True, slots=True)
class Said:
    """What a message says. `kind` is `issue`, `sprint_started`, `sprint_closed` or `other`.

    `subject` is `GPU-7` or `sprint:12`; `fields` are the issue's, or `name`, `starts` and `ends`.
    An automation's request can decide an approval: `verdict` is `approve` or `decline`.
    """

    kind: str
    subject: str
    at: datetime
    board: int | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""
    reason: str = ""

    @property
    def project(self) -> str:
        """The key of the issue's project; empty for a sprint."""
        return self.subject.rpartition("-")[0] if self.kind == "issue" else ""


def message_read(data: Mapping[str, Any]) -> Said:
    """Returns what a webhook of Jira, or a web request of its automation, says.

    Raises:
        BadMessage
    """
    at = _moment(data.get("timestamp"))
    if at is None:
        raise BadMessage("jira_timestamp")
    event = data.get("webhookEvent", "")
    if event in _SPRINT_EVENTS:
        return _sprint(_SPRINT_EVENTS[event], data.get("sprint"), at)
    if "issue" not in data or (event and event not in _ISSUE_EVENTS):
        return Said("other", str(event)[:80], at)
    verdict = data.get("approval", "")
    if verdict not in ("", "approve", "decline"):
        raise BadMessage("jira_approval")
    return replace(_issue(data["issue"], at), verdict=verdict, reason=_text(data.get("reason")))


def is_fresh(at: datetime, now: datetime, *, is_resent: bool) -> bool:
    """Returns whether a message of this time is taken. `is_resent`: Jira may send it again late."""
    return now - (RESEND_PERIOD if is_resent else SKEW) <= at <= now + SKEW


def signature_is_right(header: str, secrets: Collection[str], body: bytes) -> bool:
    """Returns whether the header `X-Hub-Signature` was made with one of the secrets."""
    method, _, found = header.partition("=")
    return method == "sha256" and any(
        hmac.compare_digest(hmac.digest(secret.encode(), body, hashlib.sha256).hex(), found.strip().lower())
        for secret in secrets
    )


def request_text(template: str, values: Mapping[str, str]) -> str:
    """Returns the request of a template such as `{customfield_10050} nvlink`.

    Raises:
        BadMessage: A field is missing or empty.
    """
    missing = [name for name in _FIELD.findall(template) if not values.get(name)]
    if missing:
        raise BadMessage("jira_field", name=missing[0])
    return " ".join(_FIELD.sub(lambda found: values[found[1]], template).split())


def issue_key(reference: str, base: str) -> str:
    """Returns the key of the issue that a reference names: its key or its address; else ""."""
    text = reference.removeprefix(f"{base}/browse/")
    return text if KEY.fullmatch(text) else ""


def issue_url(base: str, key: str) -> str:
    """Returns the address of an issue's page."""
    return f"{base}/browse/{key}"


def sprint_url(base: str, sprint: str) -> str:
    """Returns the address that opens the board of a sprint."""
    return f"{base}/secure/GHGoToBoard.jspa?sprintId={sprint}"


def _issue(issue: object, at: datetime) -> Said:
    if not isinstance(issue, Mapping) or not KEY.fullmatch(str(issue.get("key", ""))):
        raise BadMessage("jira_key")
    given = issue.get("fields", {})
    if not isinstance(given, Mapping):
        raise BadMessage("jira_fields")
    key = str(issue["key"])
    found = {name: _text(value) for name, value in list(given.items())[:FIELDS_MAX]}
    known = {name: text for name, text in found.items() if text and _NAME.fullmatch(name)}
    return Said("issue", key, at, fields={**known, "key": key})


def _sprint(kind: str, sprint: object, at: datetime) -> Said:
    if not isinstance(sprint, Mapping):
        raise BadMessage("jira_sprint")
    number, board = sprint.get("id"), sprint.get("originBoardId")
    if not isinstance(number, int) or not isinstance(board, int) or not 0 < board < 2**53:
        raise BadMessage("jira_sprint_ids")
    ends = _moment(sprint.get("endDate"))
    fields = {"name": _text(sprint.get("name")), "ends": ends.isoformat() if ends else ""}
    return Said(kind, f"sprint:{number}"[:80], at, board, fields)


def _text(value: object) -> str:
    """The text of a field: as it stands, of a choice, of a user, or of a list of them."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("value", "name", "key") if name in value), "")
    if isinstance(value, list):
        return ", ".join(filter(None, map(_text, value[:20])))[:VALUE_LENGTH_MAX]
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return ""
    return " ".join((value if isinstance(value, str) else _number(value)).split())[:VALUE_LENGTH_MAX]


def _number(value: float | Decimal) -> str:
    """The number as text: a number field has 2.0 for 2."""
    number = Decimal(str(value))
    is_whole = abs(number.adjusted()) < 18 and number == number.to_integral_value()
    return str(int(number)) if is_whole else str(number)


def _moment(value: object) -> datetime | None:
    """The time in milliseconds, or as text with an offset; None for one that nobody can mean."""
    try:
        if isinstance(value, int) or (isinstance(value, str) and value.isascii() and value.isdecimal()):
            found = datetime.fromtimestamp(int(value) / 1000, UTC)
        else:
            found = datetime.fromisoformat(value if isinstance(value, str) else "")
        # Near the ends of the calendar an offset leads out of it.
        moment = found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment is not None and EARLIEST <= moment.year <= LATEST else None
