"""Calls of the REST APIs of Jira Cloud (version 3) and Data Center (version 2).

Jira has no idempotency keys: a comment carries a mark, and before a repeated attempt the comments
of the issue are searched for it. Links and transitions are the same when they are made twice.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from portal.integrations.answers import Answer
from tenants.rules.webhooks import retry_after
from tenants.services.outgoing.pinned import Pinned, TooLong, body_read

CLOUD = "cloud"
COMMENTS_SEARCHED = 50
# Wrong requests stay wrong; these are refused for a while only.
_TEMPORARY = frozenset({401, 403, 408, 409, 425, 429})
_MARKUP = re.compile(r"([\\{}\[\]!*_^~|])")
_PROBLEM_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class JiraCall:
    """A call: its site, its account, and its content.

    `is_repeated`: an earlier attempt may have arrived.
    """

    base: str
    flavour: str
    account: str
    token: str | None
    key: str
    content: Mapping[str, Any]
    is_repeated: bool

    @property
    def mark(self) -> str:
        """The mark of a comment."""
        return f"GPU Portal {self.key[:12]}"


class NotTaken(Exception):
    """Jira answered something else than what its documentation says."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.error)
        self.answer = answer


async def jira_call(receiver: Pinned, call: JiraCall) -> Answer:
    """Makes the call; returns the outcome. Raises errors of HTTP."""
    if call.token is None:
        return Answer(None, "The token can't be read any more. Enter it again.")
    site = _Site(receiver, call)
    try:
        return await {
            "test": site.test,
            "comment": site.comment,
            "link": site.link,
            "transition": site.transition,
        }[call.content["act"]]()
    except NotTaken as fault:
        return fault.answer
    except TooLong:
        return Answer(None, "The answer is longer than 1 MiB.")


class _Site:
    """A Jira site during one attempt."""

    def __init__(self, receiver: Pinned, call: JiraCall) -> None:
        self._receiver, self._call = receiver, call
        self._is_cloud = call.flavour == CLOUD
        version = "3" if self._is_cloud else "2"
        self._api = f"{receiver.target.path.rstrip('/')}/rest/api/{version}"

    async def test(self) -> Answer:
        """Asks who the account is."""
        status, found = await self._send("GET", "/myself")
        name = found.get("displayName") if isinstance(found, dict) else None
        if not isinstance(name, str):
            raise _unexpected(status)
        return Answer(status, "")

    async def comment(self) -> Answer:
        """Adds a comment unless an earlier attempt has."""
        if self._call.is_repeated and await self._has_comment():
            return Answer(200, "")
        text = f"{self._call.content['text']}\n{self._call.mark}"
        body = {"body": _document(text) if self._is_cloud else _MARKUP.sub(r"\\\1", text)}
        status, found = await self._send("POST", f"{self._issue}/comment", body)
        if not isinstance(found, dict) or "id" not in found:
            raise _unexpected(status)
        return Answer(status, "")

    async def link(self) -> Answer:
        """Creates or updates the link to the booking; its global id is the booking's."""
        content = self._call.content
        body = {
            "globalId": f"system=gpu-portal&id={content['id']}",
            "application": {"type": "gpu-portal", "name": "GPU Portal"},
            "relationship": "GPU booking",
            "object": {
                "url": content["url"],
                "title": content["title"][:255],
                "status": {"resolved": content["is_over"]},
            },
        }
        status, _ = await self._send("POST", f"{self._issue}/remotelink", body)
        return Answer(status, "")

    async def transition(self) -> Answer:
        """Moves the issue to a status, if its workflow leads there from the present one."""
        wanted = self._call.content["status"].casefold()
        status, found = await self._send("GET", f"{self._issue}/transitions")
        rows = found.get("transitions") if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise _unexpected(status)
        for row in rows:
            if wanted in (_name(row).casefold(), _name(_part(row, "to")).casefold()):
                body = {"transition": {"id": str(_part(row, "id"))}}
                status, _ = await self._send("POST", f"{self._issue}/transitions", body)
                return Answer(status, "")
        status, issue = await self._send("GET", f"{self._issue}?fields=status")
        present = _name(_part(_part(issue, "fields"), "status"))
        if present.casefold() == wanted:
            return Answer(status, "")
        sentence = f"No transition leads from {present!r} to {self._call.content['status']!r}."
        return Answer(status, sentence[:_PROBLEM_LENGTH_MAX], is_final=True)

    @property
    def _issue(self) -> str:
        return f"/issue/{quote(self._call.content['issue'], safe='')}"

    async def _has_comment(self) -> bool:
        """Whether one of the latest comments has the mark of this call."""
        path = f"{self._issue}/comment?orderBy=-created&maxResults={COMMENTS_SEARCHED}"
        status, found = await self._send("GET", path)
        rows = found.get("comments") if isinstance(found, dict) else None
        if not isinstance(rows, list):
            raise _unexpected(status)
        return any(self._call.mark in json.dumps(_part(row, "body")) for row in rows)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Returns the status and the JSON of an answer that takes the request. Raises NotTaken."""
        content = None if body is None else json.dumps(body).encode()
        sending = self._receiver.send(method, self._api + path, content=content, headers=self._headers())
        async with sending as response:
            status, raw = response.status_code, await body_read(response)
            wait = retry_after(response.headers.get("retry-after", ""))
            is_json = "json" in response.headers.get("content-type", "")
        if response.is_redirect:
            raise NotTaken(Answer(status, "Redirects are not followed."))
        data = _parsed(raw) if is_json else None
        if not 200 <= status < 300:
            raise NotTaken(_problem(status, data, wait))
        if status != 204 and data is None:
            raise _unexpected(status)
        return status, data

    def _headers(self) -> dict[str, str]:
        call = self._call
        basic = base64.b64encode(f"{call.account}:{call.token}".encode()).decode()
        return {
            "Authorization": f"Basic {basic}" if self._is_cloud else f"Bearer {call.token}",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "gpu-portal-jira/1",
            "X-Atlassian-Token": "no-check",
        }


def _document(text: str) -> dict[str, Any]:
    """The text in the Atlassian Document Format, a paragraph for each line."""
    return {
        "type": "doc",
        "version": 1,
        "content": [
            {"type": "paragraph", "content": [{"type": "text", "text": line}]}
            for line in text.splitlines()
            if line
        ],
    }


def _problem(status: int, data: object, wait: timedelta) -> Answer:
    """The outcome of a refusal. Its sentences come from Jira, whose readers are the same people."""
    texts = _part(data, "errorMessages")
    fields = _part(data, "errors")
    said = [*(texts if isinstance(texts, list) else [])]
    said += [f"{name}: {text}" for name, text in fields.items()] if isinstance(fields, dict) else []
    sentence = " ".join(map(str, said))[:_PROBLEM_LENGTH_MAX] or f"Jira answered {status}."
    is_final = 400 <= status < 500 and status not in _TEMPORARY
    return Answer(status, sentence, wait=wait, is_final=is_final)


def _unexpected(status: int) -> NotTaken:
    return NotTaken(Answer(status, "The answer is not that of Jira's REST API."))


def _parsed(raw: bytes) -> object:
    try:
        found: object = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found


def _part(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _name(value: object) -> str:
    return str(_part(value, "name") or "")
