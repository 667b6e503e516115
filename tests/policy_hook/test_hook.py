"""The hook over HTTP: what it says counts, and what it does wrong falls under its rule."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from allocation.models import Booking
from portal.integrations.relay import outbox_relay
from tenants.models import Notification, PolicyHookCall, PolicyHookHealth
from tenants.services.policy_hooks.calls import CALLS_KEPT, FAILURES_MOST, hook_post
from tests.api.builders import said
from tests.policy_hook.conftest import Hooked
from tests.policy_hook.hook_server import ADMIT
from tests.roles import as_system

pytestmark = pytest.mark.turn

DENY: dict[str, Any] = {"decision": "deny", "message": "Not <b>before</b> the review."}
BODY = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}
MOVE = {"decision": "admit", "tier": "spot", "message": "Cheaper at night."}


def refused(answer: Any, status: int = 409) -> dict[str, Any]:  # noqa: ANN401 (a response)
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = said(answer)
    return found


def test_an_admitted_request_is_booked_and_says_so(hooked: Hooked) -> None:
    made = said(hooked.book(name="Fold", labels={"team": "vision"}, key="one"))
    assert hooked.events(made["number"])[1] == (
        "policy_hook",
        "The policy hook of Helix admitted this.",
    )
    (message,) = hooked.hook.verified(hooked.secret)
    assert message["type"] == "policy_hook.question"
    data = message["data"]
    assert (data["tenant"], data["act"], data["asker"]) == ("helix", "booking", "mara")
    (request,) = data["requests"]
    assert (request["project"], request["tier"], request["name"]) == (
        "folding",
        "standard",
        "Fold",
    )
    assert request["ask"]["classes"] == ["h100"]
    quote = said(hooked.site.researcher.post("quotes", BODY))
    assert quote["asks_hook"]
    assert request["cost"] == {"most": quote["options"][0]["most"], "currency": "EUR"}
    budget = said(hooked.site.researcher.get("budgets"))["items"][0]
    assert request["budget"] == {
        "name": "Folding",
        "level": "project",
        "amount": budget["amount"],
        "left": budget["amount"],
        "currency": "EUR",
        "starts": budget["starts"],
        "ends": budget["ends"],
    }
    # A repeated request gets its stored answer; the hook is not asked again.
    again = hooked.book(name="Fold", labels={"team": "vision"}, key="one")
    assert again["Idempotency-Replayed"] == "true"
    assert len(hooked.hook.got) == 1
    (call,) = hooked.calls()
    assert (call["outcome"], call["status"], call["error"]) == ("admitted", 200, "")
    assert call["requests"] == [request]


def test_a_denial_has_its_words_and_is_not_asked_again(hooked: Hooked) -> None:
    hooked.hook.answer = DENY
    problem = refused(hooked.book(key="one"))
    assert (problem["code"], problem["rule"], problem["owner"]) == (
        "policy_hook_denied",
        "R160",
        "tenant_admin",
    )
    assert "Not <b>before</b> the review." in problem["detail"]
    hooked.hook.answer = ADMIT
    assert refused(hooked.book(key="one")) == problem
    assert len(hooked.hook.got) == 1
    with as_system():
        assert not Booking.objects.exists()


def test_it_moves_the_tier_and_narrows_the_window(hooked: Hooked) -> None:
    since = timezone.now().replace(microsecond=0) + timedelta(hours=2)
    hooked.hook.answer = {**MOVE, "window": {"not_before": since.isoformat()}}
    made = said(hooked.book())
    assert (made["tier"], made["ask"]["not_before"]) == ("spot", f"{since:%Y-%m-%dT%H:%M:%SZ}")
    _, text = hooked.events(made["number"])[1]
    assert text == (
        "The policy hook of Helix moved the tier from Standard to Spot and narrowed the window: "
        "“Cheaper at night.”"
    )
    assert [each["outcome"] for each in hooked.calls()] == ["changed"]
    with as_system():
        booking = Booking.objects.get()
        assert (booking.tier_id, booking.not_before) == ("spot", since)


def test_what_it_changes_passes_admission_as_any_other_request(hooked: Hooked) -> None:
    # The tier is open to the asker; the deadline leaves no time, which admission refuses.
    soon = timezone.now().replace(microsecond=0) + timedelta(minutes=11)
    hooked.hook.answer = {"decision": "admit", "window": {"deadline": soon.isoformat()}}
    assert hooked.book("1 h100 for 10m").status_code == 201
    hooked.hook.answer = MOVE
    over = hooked.book("8 h100 for 10m")
    assert refused(over)["code"] in ("project_quota", "tenant_quota")


FALSE_ANSWERS: list[tuple[dict[str, Any], str]] = [
    ({"answer": {"decision": "admit", "tier": "gold"}}, "no tier 'gold'"),
    (
        {"answer": {"decision": "admit", "window": {"not_before": "2001-01-01T00:00:00Z"}}},
        "before the window",
    ),
    ({"answer": {"decision": "perhaps"}}, "neither"),
    ({"answer": b"<html>Sign in</html>", "headers": {"Content-Type": "text/html"}}, "not valid"),
    ({"status": 500}, "status 500"),
    ({"status": 302, "headers": {"Location": "http://127.0.0.1/"}}, "Redirects"),
    ({"is_endless": True}, "more than 1024 KiB"),
    ({"answer": b"\x1f\x8b", "headers": {"Content-Encoding": "gzip"}}, "compressed"),
]


@pytest.mark.parametrize(("does", "error"), FALSE_ANSWERS, ids=[error for _, error in FALSE_ANSWERS])
def test_a_hook_that_lies_falls_under_its_rule(hooked: Hooked, does: dict[str, Any], error: str) -> None:
    for name, value in does.items():
        setattr(hooked.hook, name, value)
    answer = hooked.book(key="one")
    problem = refused(answer, 503)
    assert (problem["code"], problem["owner"]) == ("policy_hook_failed", "tenant_admin")
    assert answer["Retry-After"]
    hooked.set(is_fail_open=True)
    # The same key works: a failure is no answer that is kept.
    made = said(hooked.book(key="one"))
    _, text = hooked.events(made["number"])[1]
    assert text.startswith("The policy hook of Helix gave no valid answer, so its rule")
    assert error in text
    assert [each["outcome"] for each in hooked.calls()] == ["failed"] * 2
    call = hooked.calls()[0]
    assert error in call["error"]
    # The body of anything else than decisions is not shown.
    assert bool(call["answer"]) == ("tier" in error or "window" in error)


def test_a_tier_that_the_person_may_not_use_is_no_answer(hooked: Hooked) -> None:
    answer = hooked.site.admin.post("tier-versions", {"tier": "spot", "audience": "leads"})
    assert answer.status_code == 201, answer.content
    hooked.hook.answer = MOVE
    assert refused(hooked.book(), 503)["code"] == "policy_hook_failed"
    assert "leads" in hooked.calls()[0]["error"]


def test_a_fixed_start_can_not_be_moved(hooked: Hooked) -> None:
    later = (timezone.now() + timedelta(days=2)).replace(microsecond=0)
    hooked.hook.answer = {"decision": "admit", "window": {"not_before": later.isoformat()}}
    assert refused(hooked.book("1 h100 tomorrow 09:00-10:00"), 503)["code"] == "policy_hook_failed"
    assert "fixed" in hooked.calls()[0]["error"]


def test_a_hook_that_sleeps_is_left_after_its_time_and_not_asked_for_a_while(
    hooked: Hooked, settings: Settings
) -> None:
    hooked.set(timeout_ms=100)
    hooked.hook.sleeps = True
    for _ in range(FAILURES_MOST):
        assert refused(hooked.book(), 503)["code"] == "policy_hook_failed"
    assert "No answer within 0.1 s." in hooked.calls()[0]["error"]
    assert [each["outcome"] for each in hooked.calls()] == ["failed"] * FAILURES_MOST
    # The circuit breaker: its rule counts at once.
    refused(hooked.book(), 503)
    assert hooked.calls()[0]["outcome"] == "skipped"
    with as_system():
        outbox_relay(timezone.now())
        notified = Notification.objects.filter(kind="policy_hook.failing")
        assert set(notified.values_list("user__username", flat=True)) == {"ada", "otto"}
        assert notified[0].title == "The policy hook failed 5 times in a row"
        PolicyHookHealth.objects.update(not_before=timezone.now() - timedelta(seconds=1))
    hooked.hook.sleeps = False
    assert hooked.book().status_code == 201
    assert said(hooked.site.admin.get("policy-hook"))["failures"] == 0


def test_too_many_calls_at_once_fall_under_the_rule(
    hooked: Hooked, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenants.services.policy_hooks import calls  # noqa: PLC0415

    monkeypatch.setitem(calls._open, hooked.site.tenant.id, settings.WEB_THREADS // 4)
    assert refused(hooked.book(), 503)["code"] == "policy_hook_failed"
    assert hooked.calls()[0]["error"].startswith("Too many calls")
    assert not hooked.hook.got
    with as_system():
        assert PolicyHookHealth.objects.get().failures == 0, "the hook has done nothing wrong"


def test_a_dry_run_asks_and_changes_nothing(hooked: Hooked) -> None:
    hooked.set(is_dry_run=True)
    hooked.hook.answer = DENY
    made = said(hooked.book())
    assert [kind for kind, _ in hooked.events(made["number"])] == ["requested"]
    (call,) = hooked.calls()
    assert (call["outcome"], call["is_dry_run"]) == ("denied", True)
    assert hooked.hook.questions[0]["is_dry_run"] is True


def test_a_batch_is_one_question_with_an_answer_for_each(hooked: Hooked) -> None:
    line = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}
    items = [line, {**line, "project": "not-mine"}, line]
    hooked.hook.answer = {"decisions": [MOVE, DENY]}
    answer = said(hooked.site.researcher.post("bookings/batch", {"items": items, "mode": "some"}))
    errors = [each["error"] and each["error"]["code"] for each in answer["items"]]
    assert errors == [None, "not_found", "policy_hook_denied"]
    assert answer["items"][0]["booking"]["tier"] == "spot"
    assert [len(each["requests"]) for each in hooked.hook.questions] == [2]


def test_series_arrays_and_the_waiting_list_are_one_question_each(hooked: Hooked) -> None:
    post = hooked.site.researcher.post
    body = {"project": "folding", "tier": "standard"}
    line = "1 h100 tomorrow 09:00-09:30 every day until " + (f"{timezone.now() + timedelta(days=3):%Y-%m-%d}")
    series = post("series", {**body, "request": line})
    assert series.status_code == 201, series.content
    array = post("bookings", {**body, "request": "1 h100 for 10m", "array": 3})
    assert array.status_code == 201, array.content
    day = (timezone.now() + timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    starts, until = day.isoformat(), (day + timedelta(hours=1)).isoformat()
    waits = post(
        "waitlist",
        {
            **body,
            "ask": {"count": 1, "classes": ["h100"], "duration": 600},
            "windows": [{"since": starts, "until": until}],
        },
    )
    assert waits.status_code == 201, waits.content
    assert [each["act"] for each in hooked.hook.questions] == ["series", "array", "waiting"]
    assert hooked.hook.questions[0]["requests"][0]["series"]["dates"] >= 2
    assert hooked.hook.questions[1]["requests"][0]["array"]["count"] == 3


def test_stronger_changes_are_asked_and_weaker_ones_and_quotes_are_not(hooked: Hooked) -> None:
    made = said(hooked.book("1 h100 for 20m"))
    etag, path = f'"{made["revision"]}"', f"bookings/{made['number']}"
    patch = hooked.site.researcher.send

    def change(line: str, **headers: str) -> Any:  # noqa: ANN401 (a response)
        return patch("PATCH", path, {"request": line}, headers={"if_match": etag, **headers})

    post = hooked.site.researcher.post
    body = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}
    assert post("quotes", body).status_code == 200
    assert change("2 h100 for 20m", prefer="dry-run").status_code == 200
    assert len(hooked.hook.got) == 1
    hooked.hook.answer = DENY
    assert refused(change("2 h100 for 20m"))["code"] == "policy_hook_denied"
    assert hooked.hook.questions[-1]["act"] == "change"
    (asked_about,) = hooked.hook.questions[-1]["requests"]
    assert asked_about["change"]["booking"] == made["number"]
    before, after = asked_about["change"]["cost"], asked_about["cost"]
    assert Decimal(after["most"]) == 2 * Decimal(before["most"]) > 0
    budget = said(hooked.site.researcher.get("budgets"))["items"][0]
    assert asked_about["budget"]["name"] == "Folding"
    assert Decimal(budget["amount"]) - Decimal(asked_about["budget"]["left"]) == Decimal(before["most"])
    hooked.hook.answer = ADMIT
    assert change("2 h100 for 20m").status_code == 200
    asked = len(hooked.hook.got)
    etag = f'"{said(hooked.site.researcher.get(path))["revision"]}"'
    hooked.hook.answer = DENY
    assert change("1 h100 for 20m").status_code == 200
    assert len(hooked.hook.got) == asked
    kinds = [kind for kind, _ in hooked.events(made["number"])]
    assert kinds.count("policy_hook") == 2


def test_other_organisations_ask_no_hook_and_see_none(hooked: Hooked) -> None:
    site = hooked.site
    body = {"project": "climate", "tier": "standard", "request": "1 h100 for 10m"}
    site.outsider.post("bookings", body)
    assert not hooked.hook.got
    said(hooked.book())
    for api in (site.researcher, site.lead, site.viewer):
        assert api.get("policy-hook").status_code == 403
        assert api.put("policy-hook", {"url": hooked.hook.url}).status_code == 403
        assert api.get("policy-hook/calls").status_code == 403
        assert api.post("policy-hook/test", {}).status_code == 403
    assert site.outsider.get("policy-hook").status_code in (403, 404)


def test_the_life_of_a_hook(hooked: Hooked) -> None:
    admin = hooked.site.admin
    assert hooked.secret.startswith("whsec_")
    assert hooked.set(is_on=False)["secret"] is None
    said(hooked.book())
    assert not hooked.hook.got
    # A test asks a hook that is off, too, and signs with both secrets after a rotation.
    old = hooked.secret
    new = said(admin.post("policy-hook/secret", {}))["secret"]
    assert said(admin.post("policy-hook/test", {}))["error"] == ""
    assert hooked.hook.verified(old) == hooked.hook.verified(new)
    hooked.hook.answer = {"decision": "admit", "tier": "gold"}
    assert "gold" in said(admin.post("policy-hook/test", {}))["error"]
    for url, code in (("http://10.0.0.1/", "bad_url"), ("gopher://x/", "bad_url")):
        assert refused(admin.put("policy-hook", {"url": url}), 422)["code"] == code
    for body in ({"timeout_ms": 2001}, {"timeout_ms": 99}):
        answer = admin.put("policy-hook", {"url": hooked.hook.url, **body})
        assert refused(answer, 422)["param"] == "timeout_ms"
    assert admin.delete("policy-hook").status_code == 204
    assert admin.get("policy-hook").status_code == 404
    assert admin.delete("policy-hook").status_code == 404


def test_the_log_is_bounded(hooked: Hooked) -> None:
    said(hooked.book())
    with as_system():
        first = PolicyHookCall.objects.get()
        rows = [
            PolicyHookCall(
                **{
                    field.attname: getattr(first, field.attname)
                    for field in PolicyHookCall._meta.fields
                    if not field.primary_key
                }
            )
            for _ in range(CALLS_KEPT)
        ]
        PolicyHookCall.objects.bulk_create(rows)
    said(hooked.book())
    with as_system():
        assert PolicyHookCall.objects.count() == CALLS_KEPT
        assert not PolicyHookCall.objects.filter(id=first.id).exists()


def test_nobody_holds_a_transaction_during_a_call(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenants.services.policy_hooks import calls  # noqa: PLC0415

    depth, seen = len(connection.savepoint_ids), []

    def post(*args: Any, **more: Any) -> Any:  # noqa: ANN401 (passed on)
        seen.append(len(connection.savepoint_ids) - depth)
        return hook_post(*args, **more)

    monkeypatch.setattr(calls, "hook_post", post)
    made = said(hooked.book(key="one"))
    assert hooked.site.researcher.post(f"bookings/{made['number']}/cancel", {}).status_code == 200
    hooked.site.admin.post("policy-hook/test", {})
    person = Client()
    person.force_login(hooked.site.people["researcher"])
    form = {"project": "folding", "option": "standard 1 h100 10m", "key": "0" * 32}
    assert person.post("/t/helix/book", form).status_code == 302
    # 0: no transaction inside the test's own one.
    assert seen == [0, 0, 0]
