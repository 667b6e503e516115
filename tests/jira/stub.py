"""A Jira site on loopback: the parts of the REST APIs that the portal calls, as documented.

Cloud has version 3 with documents (ADF) and Basic sign-in, Data Center version 2 with text and
personal access tokens. Errors have `errorMessages` and `errors`, as Jira's have.
"""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ACCOUNT, TOKEN = "bot@helix.example", "ATATT3xFfGF0-stub"
NO_ISSUE = "Issue does not exist or you do not have permission to see it."
TRANSITIONS = {
    "To Do": {"11": "In Progress", "41": "Rejected"},
    "In Progress": {"21": "Paused", "31": "Done"},
    "Paused": {"51": "In Progress", "31": "Done"},
    "Done": {},
    "Rejected": {},
}
HTML = b"<!DOCTYPE html><html><body>Log in to continue</body></html>"


@dataclass
class Issue:
    """An issue with what was written to it."""

    status: str = "To Do"
    comments: list[dict[str, Any]] = field(default_factory=list)
    links: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The comments as text."""
        return [_plain(each["body"]) for each in self.comments]


@dataclass
class Jira:
    """`faults` answers the next requests: a status, headers and a body. `drops`: as many requests
    are carried out, and their connection breaks before the answer."""

    is_cloud: bool = True
    port: int = 0
    issues: dict[str, Issue] = field(default_factory=dict)
    faults: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    drops: int = 0
    got: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address of the site; Data Center has a context path."""
        return f"http://127.0.0.1:{self.port}{'' if self.is_cloud else '/jira'}"

    def answer(self, method: str, path: str, sent: bytes, headers: Any) -> tuple[int, Any]:  # noqa: ANN401 (mail headers)
        """The status and the JSON of a request."""
        self.got.append(f"{method} {path}")
        if not self._is_signed_in(headers.get("Authorization", "")):
            return 401, _error("Client must be authenticated to access this resource.")
        root = "/rest/api/3" if self.is_cloud else "/jira/rest/api/2"
        parts = urlsplit(path)
        if not parts.path.startswith(root):
            return 404, {"status-code": 404, "message": "null for uri"}
        rest = parts.path.removeprefix(root)
        if rest == "/myself":
            return 200, {"displayName": "GPU bot", "active": True, "timeZone": "Europe/Berlin"}
        found = re.fullmatch(r"/issue/([A-Z]+-\d+)(/comment|/remotelink|/transitions)?", rest)
        if found is None or found[1] not in self.issues:
            return 404, _error(NO_ISSUE)
        body = json.loads(sent) if sent else None
        return self._issue(method, self.issues[found[1]], found[2] or "", parts.query, body)

    def _is_signed_in(self, header: str) -> bool:
        basic = base64.b64encode(f"{ACCOUNT}:{TOKEN}".encode()).decode()
        return header == (f"Basic {basic}" if self.is_cloud else f"Bearer {TOKEN}")

    def _issue(
        self,
        method: str,
        issue: Issue,
        part: str,
        query: str,
        body: Any,  # noqa: ANN401 (JSON)
    ) -> tuple[int, Any]:
        if part == "/comment":
            return self._comment(method, issue, query, body)
        if part == "/remotelink":
            if not body.get("object", {}).get("url") or len(body["object"]["title"]) > 255:
                return 400, _error("", object="'url' and 'title' are required.")
            is_new = body["globalId"] not in issue.links
            issue.links[body["globalId"]] = body
            return (201 if is_new else 200), {"id": 10_000 + len(issue.links), "self": self.url}
        if part == "/transitions":
            return self._transition(method, issue, body)
        fields = {"status": {"id": "1", "name": issue.status}}
        return 200, {"id": "10002", "key": "GPU-7", "fields": fields}

    def _comment(
        self,
        method: str,
        issue: Issue,
        query: str,
        body: Any,  # noqa: ANN401 (JSON)
    ) -> tuple[int, Any]:
        if method == "GET":
            most = int(parse_qs(query).get("maxResults", ["50"])[0])
            latest = issue.comments[::-1][:most]
            shown = {"startAt": 0, "maxResults": most, "total": len(issue.comments)}
            return 200, {**shown, "comments": latest}
        is_document = isinstance(body["body"], dict) and body["body"].get("type") == "doc"
        if is_document != self.is_cloud:
            return 400, _error("", comment="Comment body is not valid!")
        made = {"id": str(10_100 + len(issue.comments)), "body": body["body"]}
        issue.comments.append(made)
        return 201, made

    def _transition(self, method: str, issue: Issue, body: Any) -> tuple[int, Any]:  # noqa: ANN401
        open_ones = TRANSITIONS[issue.status]
        if method == "GET":
            rows = [
                {"id": key, "name": f"To {name}", "to": {"name": name, "statusCategory": {}}}
                for key, name in open_ones.items()
            ]
            return 200, {"expand": "transitions", "transitions": rows}
        if body["transition"]["id"] not in open_ones:
            return 400, _error("It seems that you have tried to perform an illegal operation.")
        issue.status = open_ones[body["transition"]["id"]]
        return 204, None


def webhook_of(
    key: str,
    at_ms: int,
    event: str = "jira:issue_updated",
    fields: dict[str, object] | None = None,
) -> dict[str, Any]:
    """The body of a webhook of Jira about an issue."""
    project = {"id": "10000", "key": key.partition("-")[0], "name": "GPUs"}
    known = {
        "summary": "Train the ablation",
        "project": project,
        "status": {"name": "To Do"},
        "issuetype": {"name": "Task"},
        "reporter": {"accountId": "5b10", "displayName": "Mara"},
        "labels": ["gpu"],
        "customfield_10050": "1 h100 for 10m",
        "customfield_10051": None,
        "customfield_10052": {"value": "spot", "id": "10020"},
        "customfield_10053": 2.0,
        **(fields or {}),
    }
    return {
        "timestamp": at_ms,
        "webhookEvent": event,
        "issue_event_type_name": "issue_generic",
        "user": {"accountId": "5b10"},
        "issue": {"id": "10002", "self": "https://x/10002", "key": key, "fields": known},
    }


def sprint_of(event: str, number: int, at_ms: int, ends: str) -> dict[str, Any]:
    """The body of a webhook of Jira about a sprint of board 3."""
    sprint = {
        "id": number,
        "self": f"https://x/rest/agile/1.0/sprint/{number}",
        "state": "active",
        "name": f"Sprint {number}",
        "startDate": "2026-11-23T09:00:00.000Z",
        "endDate": ends,
        "originBoardId": 3,
        "goal": "",
    }
    return {"timestamp": at_ms, "webhookEvent": event, "sprint": sprint}


def _error(message: str, **fields: str) -> dict[str, Any]:
    return {"errorMessages": [message] if message else [], "errors": fields}


def _plain(body: Any) -> str:  # noqa: ANN401 (text, or a document)
    if isinstance(body, str):
        return body
    lines = ("".join(bit["text"] for bit in each["content"]) for each in body["content"])
    return "\n".join(lines)


@contextmanager
def a_jira(*, is_cloud: bool = True, issues: tuple[str, ...] = ("GPU-7",)) -> Iterator[Jira]:
    """One that runs until the end of the block."""
    jira = Jira(is_cloud=is_cloud, issues={key: Issue() for key in issues})

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if jira.faults:
                status, headers, raw = jira.faults.pop(0)
                jira.got.append(f"{self.command} {self.path}")
            else:
                status, found = jira.answer(self.command, self.path, sent, self.headers)
                headers = {"Content-Type": "application/json;charset=UTF-8"}
                raw = b"" if found is None else json.dumps(found).encode()
            if jira.drops:
                jira.drops -= 1
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = _serve

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    jira.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield jira
    finally:
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()
