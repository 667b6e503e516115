"""The policy over REST: read, draft, compare, activate and go back; operators only."""

import pytest

from allocation.models import PolicyVersion
from tenants.models import AuditEntry
from tests.api.builders import Site, said
from tests.roles import as_system


def numbers() -> dict[int, str]:
    with as_system():
        return dict(PolicyVersion.objects.values_list("number", "state"))


def test_a_draft_is_compared_activated_and_taken_back(site: Site) -> None:
    live = said(site.operator.get("policy"))
    first = live["number"]
    assert (live["state"], live["values"]["grid"], live["document"]) == ("live", 300, {})

    made = site.operator.post("policy/versions", {"document": {"grid": 600}})
    assert made.status_code == 201
    draft = said(made)
    assert (draft["number"], draft["state"], draft["created_by"]) == (first + 1, "draft", "otto")
    assert said(site.operator.get("policy"))["number"] == first, "a draft decides nothing"
    address = f"policy/versions/{draft['number']}"
    assert said(site.operator.get(address)) == draft
    assert said(site.operator.get(f"{address}/preview")) == {
        "before": {"grid": 300},
        "after": {"grid": 600},
        "moved": 0,
    }

    again = {"waiver": "Nobody else is on call."}
    done = site.operator.post(f"{address}/activate", again)
    assert (done.status_code, said(done)["number"], said(done)["state"]) == (201, first + 1, "live")
    assert said(site.operator.get("policy"))["values"]["grid"] == 600
    refused = site.operator.post(f"{address}/activate", again)
    assert (refused.status_code, said(refused)["code"]) == (422, "no_change")

    back = said(site.operator.post("policy/rollback", {"reason": "Starts were late."}))
    assert (back["number"], back["state"], back["document"]) == (first, "live", {})
    assert numbers() == {first: "live", first + 1: "retired"}
    listed = said(site.operator.get("policy/versions"))["items"]
    assert [each["number"] for each in listed] == [first + 1, first]
    with as_system():
        entries = AuditEntry.objects.filter(tenant=None, action__startswith="policy.").order_by("id")
        assert list(entries.values_list("action", flat=True)) == [
            "policy.drafted",
            "policy.published",
            "policy.rolled_back",
        ]


@pytest.mark.parametrize(
    "document",
    [
        {"grid": 0},
        {"grid": True},
        {"grid": 1.5},
        {"gird": 300},
        {"order": ["age"]},
        {"horizon": 60},
        {"victim_rules": "taken_back"},
    ],
)
def test_a_draft_that_the_solver_could_not_use_is_refused(site: Site, document: dict[str, object]) -> None:
    answer = site.operator.post("policy/versions", {"document": document})
    assert (answer.status_code, said(answer)["code"]) == (422, "bad_policy")
    assert set(numbers().values()) == {"live"}


def test_members_may_not_and_unknown_versions_are_missing(site: Site) -> None:
    first = said(site.operator.get("policy"))["number"]
    for address in (
        "policy",
        "policy/versions",
        f"policy/versions/{first}",
        f"policy/versions/{first}/preview",
    ):
        assert said(site.admin.get(address))["code"] == "not_allowed", address
    for address, body in (
        ("policy/versions", {"document": {"grid": 600}}),
        (f"policy/versions/{first}/activate", None),
    ):
        answer = site.admin.post(address, body)
        assert answer.status_code in (403, 422), address
        assert set(numbers().values()) == {"live"}
    for address in ("policy/versions/77", "policy/versions/77/preview"):
        assert said(site.operator.get(address))["code"] == "not_found"
    assert said(site.operator.post("policy/versions/77/activate"))["code"] == "not_found"
