"""Tokens and sessions over REST: none outlives its maker, all can be ended at once."""

from datetime import datetime

from tenants.models import Session
from tests.api.builders import Api, Site, said
from tests.builders import a_session
from tests.roles import as_system


def test_a_token_of_a_day_makes_none_of_a_year(site: Site) -> None:
    me = said(site.researcher.get("me"))
    mine = next(
        token for token in said(site.researcher.get("tokens"))["items"] if token["id"] == me["token_id"]
    )
    made = said(site.researcher.post("tokens", {"name": "CI", "days": 365}))
    assert datetime.fromisoformat(made["expires"]) == datetime.fromisoformat(mine["expires"])
    # And with its maker it ends.
    child = Api(made["token"])
    assert child.get("me").status_code == 200
    assert site.researcher.delete(f"tokens/{me['token_id']}").status_code == 200
    assert child.get("me").status_code == 401


def test_all_tokens_end_at_once_the_one_that_asks_too(site: Site) -> None:
    other = Api(said(site.researcher.post("tokens", {"name": "CI", "days": 1}))["token"])
    assert said(site.researcher.delete("tokens")) == {"ended": 2}
    assert [api.get("me").status_code for api in (site.researcher, other)] == [401, 401]
    assert site.lead.get("me").status_code == 200


def test_sessions_are_listed_and_ended(site: Site) -> None:
    mine = [a_session(site.people["researcher"]) for _ in range(3)]
    foreign = a_session(site.people["lead"])
    rows = said(site.researcher.get("sessions"))["items"]
    assert {row["id"] for row in rows} == {str(session.id) for session in mine}
    assert "data" not in rows[0]
    assert "digest" not in rows[0]
    assert site.researcher.delete(f"sessions/{mine[0].id}").status_code == 204
    assert site.researcher.delete(f"sessions/{foreign.id}").status_code == 404
    assert said(site.researcher.delete("sessions")) == {"ended": 2}
    with as_system():
        assert [session.id for session in Session.objects.all()] == [foreign.id]


def test_sessions_come_in_pages(site: Site) -> None:
    for _ in range(3):
        a_session(site.people["researcher"])
    first = said(site.researcher.get("sessions", limit="2"))
    rest = said(site.researcher.get("sessions", limit="2", cursor=first["next"]))
    assert len({row["id"] for row in first["items"] + rest["items"]}) == 3
    assert rest["next"] is None
