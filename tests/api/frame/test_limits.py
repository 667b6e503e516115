"""How often one may call: per token, address and person, with the time to wait."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
import redis
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client
from django.urls import resolve
from pytest_django import Settings
from rest_framework.serializers import Serializer

from tenants.platform.costly import costly, costly_of
from tenants.platform.errors import Refused
from tenants.services.sign_in import rate_limits
from tenants.services.sign_in.rate_limits import WINDOW_SECONDS, call_limit_check
from tests.api.builders import Api, Site, said

NOW = datetime(2026, 11, 22, 12, 0, 3, tzinfo=UTC)
GOOD = {"project": "folding", "request": "1 h100 for 10m"}


@pytest.fixture
def limits(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Limits that a test may lower, on a clock that stands."""
    found = {"token": 1000, "address": 1000, "quotes": 1000, "enrol": 1000}
    settings.CALL_LIMITS = found
    monkeypatch.setattr("tenants.api.base.timezone.now", lambda: NOW)
    cache.clear()
    monkeypatch.setattr(rate_limits, "_blocks", rate_limits._Blocks())
    return found


def refused(answer: HttpResponse) -> bool:
    """Whether it is the answer to too many calls; anything else must have worked."""
    if answer.status_code != 429:
        assert answer.status_code < 300, answer.content
        return False
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Retry-After"] == "7"
    assert said(answer)["code"] == "too_many_requests"
    return True


def test_one_token_has_a_share_and_another_its_own(site: Site, limits: dict[str, int]) -> None:
    limits["token"] = 3
    assert [refused(site.researcher.get("me")) for _ in range(5)] == [False] * 3 + [True] * 2
    assert not refused(site.lead.get("me"))


def test_an_address_has_a_share_for_all_its_tokens_and_wrong_ones(site: Site, limits: dict[str, int]) -> None:
    limits["address"] = 4
    for api in (Api("gpup_pat_guessed"), Api(None)):
        assert api.get("me").status_code == 401
        assert api.get("me").status_code == 401
    assert refused(site.researcher.get("me"))
    elsewhere = Client(REMOTE_ADDR="198.51.100.7")
    headers = {"Authorization": f"Bearer {site.researcher.token}"}
    assert elsewhere.get("/api/v1/me", headers=headers).status_code == 200


def test_a_made_up_header_is_no_other_address(site: Site, limits: dict[str, int]) -> None:
    limits["address"] = 2
    answers = [
        site.researcher.send("GET", "me", headers={"X-Forwarded-For": f"10.0.0.{each}"}) for each in range(3)
    ]
    assert [refused(answer) for answer in answers] == [False, False, True]


def test_quotes_are_counted_by_person_whatever_the_token(site: Site, limits: dict[str, int]) -> None:
    limits["quotes"] = 2
    other = said(site.researcher.post("tokens", {"name": "two", "days": 1}))
    second = Api(other["token"])
    assert not refused(site.researcher.post("quotes", GOOD))
    assert not refused(second.post("quotes", GOOD))
    assert refused(second.post("quotes", GOOD))
    assert not refused(second.get("me"))


def test_a_person_has_one_share_of_quotes_for_pages_and_rest(
    site: Site, limits: dict[str, int], client: Client
) -> None:
    limits["quotes"] = 2
    client.force_login(site.people["researcher"])

    asked = {"q": GOOD["request"]}
    assert not refused(site.researcher.post("quotes", GOOD))
    assert "Understood" in client.get("/t/helix/book", asked).content.decode()
    for headers in (None, {"X-Fragment": "1"}):
        answer = client.get("/t/helix/book", asked, headers=headers)
        text = answer.content.decode()
        assert (answer.status_code, answer["Retry-After"]) == (429, "7")
        note = text.partition('id="ask-note"')[2].partition("</div>")[0]
        assert "at most 2 in 10 seconds are possible. Try again in 7 seconds." in note
        assert "data-book" not in text
    # What can't be quoted costs nothing, and others have a share of their own.
    assert client.get("/t/helix/book").status_code == 200
    assert not refused(site.lead.post("quotes", GOOD))


def test_enrolment_tokens_can_not_be_tried_out(site: Site, limits: dict[str, int]) -> None:
    limits["enrol"] = 2
    body = {"token": "guessed", "inventory": {}}
    statuses = [Api(None).post("agents/enrol", body).status_code for _ in range(3)]
    assert statuses[2] == 429
    assert 429 not in statuses[:2]


def test_a_refused_call_keeps_no_answer_for_its_key(site: Site, limits: dict[str, int]) -> None:
    limits["token"] = 0
    assert refused(site.researcher.post("bookings", GOOD, idempotency_key="k"))
    limits["token"] = 10
    again = site.researcher.post("bookings", GOOD, idempotency_key="k")
    assert again.status_code != 429, again.content
    assert "Idempotency-Replayed" not in again


@pytest.mark.usefixtures("django_db_setup")
def test_the_share_is_new_after_ten_seconds(limits: dict[str, int]) -> None:
    limits["token"] = 1
    call_limit_check("token", "one", NOW)
    with pytest.raises(Refused) as refusal:
        call_limit_check("token", "one", NOW)
    wait = refusal.value.numbers["retry_after_seconds"]
    assert 1 <= wait <= WINDOW_SECONDS
    with pytest.raises(Refused):
        call_limit_check("token", "one", NOW + timedelta(seconds=wait - 1))
    call_limit_check("token", "one", NOW + timedelta(seconds=wait))


def test_without_redis_each_process_counts_for_itself(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(rate_limits, "_store", away)
    limits["token"] = 2
    for _ in range(2):
        call_limit_check("token", "alone", NOW)
    with pytest.raises(Refused):
        call_limit_check("token", "alone", NOW)
    call_limit_check("token", "alone", NOW + timedelta(seconds=WINDOW_SECONDS))


@pytest.mark.usefixtures("django_db_setup")
def test_processes_that_take_blocks_let_no_more_pass_than_the_limit(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits["token"] = 250
    passed, trips, counted = 0, Counter[str](), rate_limits._counted

    def counting(key: str, calls: int) -> int:
        trips[key] += 1
        return counted(key, calls)

    monkeypatch.setattr(rate_limits, "_counted", counting)
    processes = [rate_limits._Blocks() for _ in range(3)]
    for number in range(300):
        monkeypatch.setattr(rate_limits, "_blocks", processes[number % 3])
        try:
            call_limit_check("token", "many", NOW)
        except Refused:
            continue
        passed += 1
    assert passed == 250
    # Two calls each time, then fifty that are refused.
    assert trips.total() == 125 + 50


@pytest.mark.parametrize(
    "path",
    [
        "me/data",
        "spend",
        "availability",
        "approvals/00000000-0000-4000-8000-000000000000",
        "policy/versions/1/preview",
    ],
)
def test_what_grows_with_the_site_passes_the_gate(path: str) -> None:
    declared = costly_of(resolve(f"/api/v1/{path}").func)
    assert declared is not None
    assert declared.meets("GET", {}, b"")


def test_only_a_view_can_be_declared_as_costly() -> None:
    with pytest.raises(TypeError, match="is no view"):
        costly("export")(type("DataOut", (Serializer,), {}))
