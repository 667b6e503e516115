"""The client repeats what a busy portal did not begin, with the same key, and not for ever."""

from dataclasses import dataclass, field

import httpx
import pytest

from gpu_client import api
from gpu_client.api import REPEAT_SECONDS, Client
from gpu_client.config import Config
from gpu_client.problems import Problem


@dataclass
class Portal:
    """Gives its answers one after the other, the last one again; time passes by waiting only."""

    answers: list[httpx.Response]
    asked: list[httpx.Request] = field(default_factory=list)
    waited: list[int] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def monotonic(self) -> float:
        return float(sum(self.waited))

    def sleep(self, seconds: int) -> None:
        self.waited.append(seconds)


def busy(status: int, after: str | None) -> httpx.Response:
    headers = {} if after is None else {"Retry-After": after}
    return httpx.Response(status, headers=headers, json={"code": "busy", "status": status})


def a_client(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(api, "time", portal)
    config = Config(url="http://localhost", token="gpup_pat_x")
    return Client(config, transport=httpx.MockTransport(portal))


def test_a_busy_portal_is_asked_again_with_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    done = httpx.Response(201, json={"number": 7})
    portal = Portal([busy(503, "2"), busy(429, "1"), done])
    with a_client(portal, monkeypatch) as client:
        assert client.book({"project": "nlp"}) == {"number": 7}
    assert portal.waited == [2, 1]
    keys = {request.headers["Idempotency-Key"] for request in portal.asked}
    assert len(keys) == 1
    assert {request.content for request in portal.asked} == {b'{"project":"nlp"}'}


def test_waiting_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = Portal([busy(503, "9")])
    with a_client(portal, monkeypatch) as client, pytest.raises(Problem) as refused:
        client.me()
    assert refused.value.code == "busy"
    assert 0 < sum(portal.waited) <= REPEAT_SECONDS
    assert len(portal.asked) == 4


@pytest.mark.parametrize(
    "answer",
    [busy(503, None), busy(503, "soon"), busy(503, "3600"), busy(500, "1"), busy(409, "1")],
    ids=lambda answer: f"{answer.status_code} {answer.headers.get('Retry-After')}",
)
def test_other_refusals_are_final(answer: httpx.Response, monkeypatch: pytest.MonkeyPatch) -> None:
    portal = Portal([answer])
    with a_client(portal, monkeypatch) as client, pytest.raises(Problem):
        client.me()
    assert (len(portal.asked), portal.waited) == (1, [])
