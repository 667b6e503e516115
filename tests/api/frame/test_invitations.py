"""Invitations over REST: the same words for known and unknown people, yes and no."""

from uuid import uuid4

from django.utils import timezone

from tenants.models import Membership, Project
from tenants.platform.wall import tenant_tx
from tenants.services import invitation_create
from tests.api.builders import Api, Site, a_token, said
from tests.builders import a_member, a_user, actor_now
from tests.roles import as_owner, as_system

ASKED = {"to": "stefan", "role": "researcher", "project": "folding"}


def test_known_and_unknown_people_are_answered_alike(site: Site) -> None:
    answers = []
    for name in ("stefan", "nobody", "stefan@example.org"):
        made = site.lead.post("invitations", ASKED | {"to": name})
        assert made.status_code == 201
        shown = said(made)
        assert shown.pop("id")
        assert shown.pop("to") == name
        answers.append({key: shown[key] for key in ("role", "project", "state")} | {"fields": sorted(shown)})
    assert answers[0] == answers[1] == answers[2]
    people = said(site.lead.get("projects/folding/members"))["items"]
    assert "stefan" not in {person["username"] for person in people}


def test_an_invitation_is_listed_to_those_who_may_and_taken_back(site: Site) -> None:
    made = said(site.lead.post("invitations", ASKED))
    for api in (site.lead, site.admin):
        assert [row["id"] for row in said(api.get("invitations"))["items"]] == [made["id"]]
    for api in (site.viewer, site.researcher, site.outsider):
        assert said(api.get("invitations"))["items"] == []
        assert api.delete(f"invitations/{made['id']}").status_code == 404
    assert site.lead.delete(f"invitations/{made['id']}").status_code == 204
    assert said(site.lead.get("invitations"))["items"] == []
    assert site.lead.delete(f"invitations/{made['id']}").status_code == 404


def test_an_invitation_that_nobody_can_accept_is_not_listed(site: Site) -> None:
    made = said(site.lead.post("invitations", ASKED))
    for what in ("role", "closed"):
        with as_owner():
            if what == "role":
                Membership.objects.filter(user__username="jonas").update(role="researcher")
            else:
                Membership.objects.filter(user__username="jonas").update(role="lead")
                Project.objects.filter(slug="folding").update(is_open=False)
        assert said(site.admin.get("invitations"))["items"] == []
    with as_owner():
        Project.objects.filter(slug="folding").update(is_open=True)
    assert [row["id"] for row in said(site.admin.get("invitations"))["items"]] == [made["id"]]


def test_a_member_accepts_or_declines_over_rest(site: Site) -> None:
    for act, role in (("decline", "viewer"), ("accept", "lead")):
        site.admin.post("invitations", {"to": "vera", "role": role, "project": "hidden"})
        (offer,) = said(site.viewer.get("me/invitations"))["items"]
        assert (offer["role"], offer["inviter"]) == (role, "ada")
        assert site.researcher.post(f"me/invitations/{offer['id']}/{act}").status_code == 404
        assert said(site.viewer.post(f"me/invitations/{offer['id']}/{act}"))["role"] == role
        assert site.viewer.post(f"me/invitations/{offer['id']}/{act}").status_code == 404
    roles = {row["project"]: row["role"] for row in said(site.viewer.get("me"))["roles"]}
    assert roles == {"folding": "viewer", "hidden": "lead"}


def test_a_token_learns_and_answers_nothing_of_another_tenant(site: Site) -> None:
    north = site.other_project.tenant
    with tenant_tx(north.id):
        made = invitation_create(
            actor=site.actor("outsider"),
            to="mara",
            role="viewer",
            project="climate",
            now=timezone.now(),
        )
    assert said(site.researcher.get("me/invitations"))["items"] == []
    for act in ("accept", "decline"):
        foreign = site.researcher.post(f"me/invitations/{made.id}/{act}")
        missing = site.researcher.post(f"me/invitations/{uuid4()}/{act}")
        assert (foreign.status_code, foreign.content) == (404, missing.content)
    with as_system():
        assert not Membership.objects.filter(tenant=north, user__username="mara").exists()


def test_an_accepted_invitation_is_replayed_by_its_key(site: Site) -> None:
    user = a_user("new.one")
    a_member(site.hidden, "viewer", user=user)
    mine = Api(a_token(actor_now(user.id, "helix")))
    site.lead.post("invitations", ASKED | {"to": "new.one"})
    (offer,) = said(mine.get("me/invitations"))["items"]
    path = f"me/invitations/{offer['id']}/accept"
    first, again = (mine.post(path, idempotency_key="once") for _ in range(2))
    assert (first.status_code, said(first)) == (again.status_code, said(again)) == (200, offer)
