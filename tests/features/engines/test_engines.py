"""Engines over REST and on operators' pages: what is shown, and what one press does."""

import pytest
from django.test import Client

from allocation.models import EngineHost, Node
from tests.api.builders import Api, Site, said
from tests.roles import as_role, as_system
from tests.services.nodes.test_engine_agents import plain_of
from tests.web.flat import flat
from tests.web.operator_sites import engaged

KIND = "2 × NVIDIA H100 80GB HBM3"


@pytest.fixture
def operator(site: Site) -> Client:
    """An operator's browser, on a site with an engine that has reported hosts."""
    with as_role("portal_ops"):
        engaged(site)
        EngineHost.objects.filter(name="n9").update(kind="1 × X")
        first = EngineHost.objects.get()
        for name in ("n1", "n2", "N3", "gpu-a1-01"):
            inventory = plain_of(name) if name in ("n1", "n2") else None
            kind = KIND if inventory else ""
            EngineHost.objects.create(
                engine=first.engine, name=name, since=first.since, inventory=inventory, kind=kind
            )
    client = Client()
    client.force_login(site.people["operator"])
    return client


def test_one_press_approves_all_hosts_of_a_kind(operator: Client, site: Site) -> None:
    page = flat(operator.get("/ops/engines").content.decode())
    assert "main" in page
    page = flat(operator.get("/ops/engines/main").content.decode())
    assert f"2 hosts with {KIND}" in page
    assert "in the portal n3" in page
    answer = operator.post("/ops/engines/main", {"act": "approve", "kind": KIND})
    assert answer.status_code == 302, flat(answer.content.decode())
    with as_system():
        nodes = Node.objects.filter(engine_agent="main")
        assert set(nodes.values_list("name", "state")) == {("n1", "ready"), ("n2", "ready")}
    page = flat(operator.get("/ops/engines/main").content.decode())
    assert f"hosts with {KIND}" not in page
    assert "/ops/fleet/n1" in page
    assert "One agent serves it with other hosts" in flat(operator.get("/ops/fleet/n1").content.decode())
    # Everybody sees which nodes an engine serves.
    engines = {each["name"]: each["agents"] for each in said(site.viewer.get("engines"))["items"]}
    assert engines["slurm"] == [{"name": "main", "nodes": ["n1", "n2"]}]


def test_the_page_refuses_and_says_why(operator: Client) -> None:
    nothing = operator.post("/ops/engines/main", {"act": "approve"})
    assert (nothing.status_code, "Name hosts, or a kind" in flat(nothing.content.decode())) == (422, True)
    gone = operator.post("/ops/engines/main", {"act": "approve", "kind": "8 × Y"})
    assert "No host with 8 × Y waits" in flat(gone.content.decode())
    asked = flat(operator.post("/ops/engines/main", {"act": "revoke"}).content.decode())
    assert "Revoke the access of the engine main?" in asked
    assert operator.get("/ops/engines/nobody").status_code == 404
    made = flat(
        operator.post("/ops/engines", {"act": "enrol", "engine": "k8s", "rack": "z9"}).content.decode()
    )
    assert "GPU_AGENT_TOKEN=gpup_engine_" in made


def test_rest_has_the_same(operator: Client, site: Site) -> None:
    api: Api = site.operator
    (engine,) = said(api.get("fleet/engines"))["items"]
    assert said(api.get("fleet/engines/main"))["name"] == engine["name"] == "main"
    states = {each["name"]: each["state"] for each in engine["hosts"]}
    assert states == {
        "n1": "waiting",
        "n2": "waiting",
        "n9": "waiting",
        "N3": "waiting",
        "gpu-a1-01": "waiting",
    }
    assert {"kind": KIND, "hosts": 2} in engine["waiting"]
    approve = "fleet/engines/main/approve"
    answer = api.post(approve, {"hosts": ["n1"]}, idempotency_key="a")
    assert {each["name"]: each["state"] for each in said(answer)["hosts"]}["n1"] == "served"
    assert {each["name"]: each["node"] for each in engine["hosts"]}["N3"] == "n3"
    moved = said(api.post(approve, {"hosts": ["n1"], "rack": "z7"}, idempotency_key="i"))
    assert {each["name"]: each["rack"] for each in moved["hosts"]}["n1"] == "z7"
    assert api.post(approve, {}, idempotency_key="b").status_code == 422
    assert api.post(approve, {"hosts": ["n7"]}, idempotency_key="c").status_code == 422
    token = api.post("fleet/engines", {"engine": "k8s", "rack": "z9"}, idempotency_key="d")
    assert said(token)["token"].startswith("gpup_engine_")
    assert api.post("fleet/engines", {"engine": "k.s", "rack": "z9"}, idempotency_key="e").status_code == 422
    assert said(api.post("fleet/engines/main/rotate-key", idempotency_key="f"))["rotating"]
    assert said(api.post("fleet/engines/main/revoke", idempotency_key="g"))["state"] == "locked_out"
    assert api.post("fleet/engines/main/revoke", idempotency_key="h").status_code == 409
    assert site.admin.get("fleet/engines").status_code == 403


def test_what_agents_send_is_refused_with_a_reason(site: Site) -> None:
    nobody = Api(None)
    body = {"token": "gpup_engine_x", "engine": "slurm", "agent": "0.9"}
    assert said(nobody.post("agents/engines", body))["code"] == "enrolment_refused"
    assert nobody.post("agents/engines", body | {"engine": "device"}).status_code == 422
    hosts = {"password": "x", "body": "{}", "key": 1, "mac": "x"}
    refusal = said(nobody.post("agents/engines/hosts", hosts))
    assert refusal["code"] == "engine_locked_out"
    assert "Enrol it again" in refusal["detail"]
    assert nobody.post("agents/engines/hosts", hosts | {"key": "x"}).status_code == 400
