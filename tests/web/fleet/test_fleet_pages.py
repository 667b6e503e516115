"""Fleet pages over HTTP: what tenants and operators see, and what operators do."""

import zlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from allocation.models import Decision, EnrolmentToken, Gpu, Node, NodeExamination, PolicyVersion
from solver.model.codec import encode
from solver.model.plan import Assign, Plan, Refuse
from solver.reasons.reason import reason
from tests.builders import a_member, a_project, a_tenant, an_operator
from tests.roles import as_owner, as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_node, a_place, measured

pytestmark = pytest.mark.django_db
PLAN = Plan(
    assigns=(Assign("a", "h100", (), 0, 3600),),
    waits=(),
    refusals=(Refuse("b", (reason("too_short"),)),),
    extensions=(),
)


def _page(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status, answer.content.decode()[:500]
    return answer.content.decode()


@pytest.fixture
def operator(client: Client) -> Client:
    """A browser in which an operator is signed in."""
    client.force_login(an_operator())
    return client


def test_a_fleet_without_nodes_says_who_brings_them(client: Client) -> None:
    member = a_member(a_project())
    client.force_login(member.user)
    assert "No nodes yet" in _page(client, f"/t/{member.tenant.slug}/fleet")


@pytest.mark.parametrize("view", ["", "?view=table"])
def test_both_views_show_every_node_and_never_a_foreign_name(client: Client, view: str) -> None:
    now = timezone.now()
    mine, theirs = a_member(a_project()), a_member(a_project(a_tenant(name="Rival Institute")))
    node = a_node("gpu-a1-01", now=now)
    a_node("gpu-a1-02", now=now, gpus=0)
    hidden = a_booking(theirs, now=now, name="their-secret-model")
    measured(a_place(hidden, node.gpus.all()[0]), [93], now=now)
    client.force_login(mine.user)
    page = _page(client, f"/t/{mine.tenant.slug}/fleet{view}")
    assert "gpu-a1-01" in page
    assert "gpu-a1-02" in page
    for secret in ("their-secret-model", hidden.label, "Rival Institute", "93 %"):
        assert secret not in page


def test_use_nobody_measured_is_said_in_words(client: Client) -> None:
    now = timezone.now()
    member, node = a_member(a_project()), a_node(now=now)
    a_place(a_booking(member, now=now), node.gpus.all()[0])
    client.force_login(member.user)
    page = _page(client, f"/t/{member.tenant.slug}/fleet")
    assert "not measured" in page
    assert "no reading in the last 90 s" in page


def test_a_share_is_not_called_a_whole_gpu(client: Client) -> None:
    now = timezone.now()
    member, node = a_member(a_project()), a_node(now=now)
    a_place(a_booking(member, now=now), node.gpus.all()[0], share=250)
    client.force_login(member.user)
    page = _page(client, f"/t/{member.tenant.slug}/fleet/{node.name}")
    assert "0.25 of it, shared" in page
    assert '<span class="faint">whole GPU</span>' not in page


def test_a_gpu_is_described_in_words_slot_by_slot(client: Client) -> None:
    now = timezone.now()
    member, node = a_member(a_project()), a_node(now=now)
    booking = a_booking(member, now=now, profile="2g.20gb")
    measured(a_place(booking, node.gpus.all()[0], profile="2g.20gb", start=2), [48], now=now)
    client.force_login(member.user)
    page = _page(client, f"/t/{member.tenant.slug}/fleet")
    words = f"slot 2 to 3 2g.20gb {booking.label}, yours, 48 % busy; slot 4 to 7 idle"
    assert words in page


def test_a_node_page_links_own_bookings_and_calls_others_busy(client: Client) -> None:
    now = timezone.now()
    mine, theirs = a_member(a_project()), a_member(a_project(a_tenant()))
    node = a_node(now=now)
    first, second = node.gpus.all()
    own = a_booking(mine, now=now, name="ablation")
    measured(a_place(own, first), [50, 60], now=now)
    foreign = a_booking(theirs, now=now)
    a_place(foreign, second)
    client.force_login(mine.user)
    page = _page(client, f"/t/{mine.tenant.slug}/fleet/{node.name}")
    assert f"/t/{mine.tenant.slug}/bookings/{own.label}" in page
    assert "50 to 60 % busy" in page
    assert "another organisation" in page
    assert foreign.label not in page


def test_a_node_that_is_not_there_is_a_missing_page(client: Client) -> None:
    member = a_member(a_project())
    client.force_login(member.user)
    _page(client, f"/t/{member.tenant.slug}/fleet/no-such-node", 404)


@pytest.mark.parametrize("url", ["/ops/fleet", "/ops/install", "/ops/decisions", "/ops/fleet/gpu-a1-01"])
def test_operators_pages_are_missing_for_everybody_else(client: Client, url: str) -> None:
    a_node(now=timezone.now())
    client.force_login(a_member(a_project()).user)
    _page(client, url, 404)


def test_nobody_else_can_drain_a_node(client: Client) -> None:
    node = a_node(now=timezone.now())
    client.force_login(a_member(a_project()).user)
    assert client.post(f"/ops/fleet/{node.name}/drain", {"reason": "fun"}).status_code == 404
    node.refresh_from_db()
    assert node.state == Node.State.READY


def test_an_operator_drains_a_node_with_a_reason_and_brings_it_back(operator: Client) -> None:
    node = a_node(now=timezone.now())
    operator.post(f"/ops/fleet/{node.name}/drain", {"reason": "New fan"})
    node.refresh_from_db()
    assert node.state == Node.State.DRAINING
    assert "New fan" in node.state_reason
    assert "New fan" in _page(operator, f"/ops/fleet/{node.name}")
    operator.post(f"/ops/fleet/{node.name}/ready")
    node.refresh_from_db()
    assert node.state == Node.State.READY


def test_an_operator_locks_an_agent_out_from_its_nodes_page(operator: Client) -> None:
    node = a_node(now=timezone.now())
    assert "Lock the agent" not in _page(operator, f"/ops/fleet/{node.name}")
    with as_system():
        Node.objects.filter(id=node.id).update(link_digest=b"d" * 32)
    assert f"/ops/fleet/{node.name}/revoke" in _page(operator, f"/ops/fleet/{node.name}")
    answer = operator.post(f"/ops/fleet/{node.name}/revoke", {"sure": "1"}, follow=True)
    assert "Enrol the node again" in answer.content.decode()
    node.refresh_from_db()
    assert (node.state, node.link_digest) == (Node.State.QUARANTINED, None)
    assert "locked out" in node.state_reason
    again = f'href="/ops/install?node_name={node.name}&amp;rack_name={node.rack.name}"'
    page = flat(_page(operator, f"/ops/fleet/{node.name}"))
    assert again in page
    assert f"/ops/fleet/{node.name}/ready" not in page
    assert "locked out" in _page(operator, "/ops/fleet")
    refused = operator.post(f"/ops/fleet/{node.name}/ready")
    assert refused.status_code == 409
    assert "--enrol-again" in refused.content.decode()
    install = operator.get(f"/ops/install?node_name={node.name}&rack_name={node.rack.name}")
    assert f'value="{node.name}"' in flat(install.content.decode())
    sent = {"node_name": node.name, "rack_name": node.rack.name}
    assert f"--name {node.name} --enrol-again" in operator.post("/ops/install", sent).content.decode()


def test_an_operator_rotates_a_key_and_sees_that_it_is_on_its_way(operator: Client) -> None:
    node = a_node(now=timezone.now())
    with as_system():
        Node.objects.filter(id=node.id).update(link_digest=b"d" * 32, agent_version="0.2.0")
    url = f"/ops/fleet/{node.name}"
    assert "Rotate key" in _page(operator, url)
    operator.post(f"{url}/rotate-key")
    page = _page(operator, url)
    assert "Key rotation in progress" in page
    assert "Rotate key" not in page
    answer = operator.post(f"{url}/rotate-key")
    assert answer.status_code == 409
    assert "has not signed with it yet" in answer.content.decode()


def test_nobody_else_locks_an_agent_out_or_sees_the_button(client: Client) -> None:
    node = a_node(now=timezone.now())
    with as_system():
        Node.objects.filter(id=node.id).update(link_digest=b"d" * 32)
    member = a_member(a_project())
    client.force_login(member.user)
    assert "revoke" not in _page(client, f"/t/{member.tenant.slug}/fleet/{node.name}")
    assert client.post(f"/ops/fleet/{node.name}/revoke").status_code == 404
    node.refresh_from_db()
    assert node.link_digest is not None


def test_a_quarantined_node_waits_for_the_operator_with_its_reason(operator: Client) -> None:
    node = a_node(now=timezone.now(), state=Node.State.QUARANTINED)
    with as_system():
        Node.objects.filter(id=node.id).update(state_reason="GPU 1 is known on gpu-b1-02.")
    page = _page(operator, "/ops/fleet")
    assert "GPU 1 is known on gpu-b1-02." in page
    assert f'<a class="btn sm" href="/ops/fleet/{node.name}">Review' in flat(page)
    assert f"/ops/fleet/{node.name}/ready" in _page(operator, f"/ops/fleet/{node.name}")


def test_the_install_command_carries_a_token_that_is_stored_only_as_a_digest(
    operator: Client,
) -> None:
    answer = operator.post("/ops/install", {"node_name": "gpu-c1-01", "rack_name": "c1"})
    page = answer.content.decode()
    assert "gpu-agent --portal http://" in page
    token = page.split("GPU_AGENT_TOKEN=")[1].split()[0]
    with as_system():
        (stored,) = EnrolmentToken.objects.filter(node__name="gpu-c1-01")
    assert token.encode() not in bytes(stored.digest)
    assert stored.expires - timezone.now() <= timedelta(minutes=15)
    assert token not in _page(operator, "/ops/install")


@pytest.mark.parametrize("name", ["", "Gpu 1", "-gpu", "gpu_1", "g" * 41, "gpu/../x"])
def test_a_name_that_agents_could_not_use_is_refused(operator: Client, name: str) -> None:
    answer = operator.post("/ops/install", {"node_name": name, "rack_name": "c1"})
    assert answer.status_code == 422
    assert not Node.objects.exists()


def test_a_lost_gpu_shows_its_reason(operator: Client) -> None:
    node = a_node(now=timezone.now())
    with as_system():
        Gpu.objects.filter(node=node, index=0).update(
            health=Gpu.Health.LOST, health_reason="Fell off the bus."
        )
    assert "GPU 0: Fell off the bus." in _page(operator, "/ops/fleet")


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        pytest.param(lambda: zlib.compress(encode(PLAN)), "1 placed, 1 refused", id="a plan"),
        pytest.param(lambda: b"not a plan", "recorded by another version", id="unreadable"),
    ],
)
def test_the_list_of_decisions_says_what_came_of_each(
    operator: Client, stored: Callable[[], bytes], words: str
) -> None:
    now = timezone.now()
    with as_system():
        policy, _ = PolicyVersion.objects.get_or_create(
            state=PolicyVersion.State.LIVE, defaults={"number": 1, "document": {}, "created": now}
        )
        Decision.objects.create(
            at=now,
            leader_term=1,
            policy=policy,
            snapshot=b"",
            snapshot_sha256="ab" * 32,
            plan=stored(),
            plan_sha256="cd" * 32,
            software="portal 1",
            solve_ms=7,
        )
    page = _page(operator, "/ops/decisions")
    assert words in page
    # Hashes are for the page of the decision.
    assert "cdcdcdcdcdcd" not in page


@pytest.mark.turn
def test_more_nodes_make_no_more_queries(client: Client) -> None:
    now = timezone.now()
    member = a_member(a_project())
    client.force_login(member.user)
    # The first request of a session notes that it is in use.
    _page(client, f"/t/{member.tenant.slug}/fleet")
    counts = []
    for number in range(3):
        node = a_node(f"gpu-a1-{number}", now=now, gpus=2)
        for gpu in node.gpus.all():
            measured(a_place(a_booking(member, now=now), gpu), [50], now=now)
        with CaptureQueriesContext(connection) as queries:
            _page(client, f"/t/{member.tenant.slug}/fleet")
        counts.append(len(queries))
    assert counts[2] == counts[0]


def test_the_install_page_counts_down_and_says_when_the_agent_has_come(operator: Client) -> None:
    sent = {"node_name": "gpu-c1-01", "rack_name": "c1"}
    page = operator.post("/ops/install", sent).content.decode()
    assert 'data-seconds-left="900"' in page
    assert "Waiting for the agent of gpu-c1-01" in page
    waiting = _page(operator, "/ops/install/gpu-c1-01")
    assert "Waiting for the agent of gpu-c1-01" in waiting
    assert 'id="arrival"' in waiting

    now = timezone.now()
    with as_owner():
        EnrolmentToken.objects.update(expires=now - timedelta(seconds=1))
    assert "has not connected" in _page(operator, "/ops/install/gpu-c1-01")
    with as_owner():
        EnrolmentToken.objects.update(expires=now + timedelta(minutes=15))
    with as_system():
        EnrolmentToken.objects.update(used_at=now)
        Node.objects.update(state=Node.State.READY)
    assert "gpu-c1-01 connected at" in _page(operator, "/ops/install/gpu-c1-01")
    with as_system():
        Node.objects.update(state=Node.State.QUARANTINED, state_reason="GPU 1 is new.")
    assert "needs your approval: GPU 1 is new." in _page(operator, "/ops/install/gpu-c1-01")
    _page(operator, "/ops/install/no-such-node", 404)


def test_what_has_changed_of_a_node_is_listed_and_approved_on_its_page(operator: Client) -> None:
    node = a_node(now=timezone.now())
    with as_system():
        Node.objects.update(
            state=Node.State.QUARANTINED,
            state_reason="GPU 8 is new.",
            differences=["GPU 8 is new: H100, GPU-x.", "GPU 1 was in no NVLink domain."],
        )
    # What has changed is read before it is approved.
    assert "/ready" not in _page(operator, "/ops/fleet")
    page = _page(operator, f"/ops/fleet/{node.name}")
    assert "GPU 8 is new: H100, GPU-x." in page
    assert page.index("Needs your approval") < page.index("Work on this node")
    assert "GPU 1 was in no NVLink domain." in page
    assert f"Approve {node.name}" in page
    assert operator.post(f"/ops/fleet/{node.name}/ready").status_code == 302
    assert "Needs your approval" not in _page(operator, f"/ops/fleet/{node.name}")


def test_what_works_on_a_node_is_shown_to_operators_alone_and_its_text_is_no_markup(
    operator: Client,
) -> None:
    now = timezone.now()
    member, node = a_member(a_project()), a_node(now=now)
    address = f"/ops/fleet/{node.name}"
    assert "No results yet" in _page(operator, address)
    rows = [("driver", "fail"), ("clock", "ok"), ("setfacl", "warn"), ("portal", "unknown")]
    checks = [
        {"name": name, "state": state, "seen": f"<b>{name}</b>", "do": f"mend {name}"} for name, state in rows
    ]
    with as_system():
        NodeExamination.objects.create(node=node, checks=checks, seq=1, at=now)
    page = _page(operator, address)
    for name, _ in rows:
        assert f"&lt;b&gt;{name}&lt;/b&gt;" in page
        assert f"<b>{name}</b></dd>" not in page
    assert page.index("mend driver") < page.index("mend setfacl") < page.index("mend portal")
    assert "required" in page
    assert "1 warning<" in flat(page)
    client = Client()
    client.force_login(member.user)
    assert "mend driver" not in _page(client, f"/t/{member.tenant.slug}/fleet/{node.name}")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"clock_wrong": True, "clock_skew_seconds": 7}, "Its clock is wrong"),
        ({"partitioned": True}, "It was cut off"),
        ({"ahead_epoch": 7}, "which was restored from a backup"),
    ],
)
def test_a_node_that_is_not_trusted_says_why(operator: Client, fields: dict[str, int], sentence: str) -> None:
    node = a_node(now=timezone.now())
    assert "Not trusted" not in _page(operator, f"/ops/fleet/{node.name}")
    with as_system():
        Node.objects.update(**fields)
    page = _page(operator, f"/ops/fleet/{node.name}")
    assert "Not trusted" in page
    assert sentence in page
    assert ("manage.py epoch_raise" in page) == ("ahead_epoch" in fields)
    if "ahead_epoch" in fields:
        assert page.index("manage.py epoch_raise") < page.index("Work on this node")
    assert ("7 s ahead" in page) == ("clock_wrong" in fields)


def test_an_unreachable_node_says_since_when_whom_it_hits_and_what_to_do(operator: Client) -> None:
    now = timezone.now()
    member, node = a_member(a_project()), a_node(now=now)
    first, second = node.gpus.all()
    short, long = (a_booking(member, now=now, hours=hours) for hours in (2, 10))
    a_place(short, first)
    a_place(long, second)
    address = f"/ops/fleet/{node.name}"
    assert "Work on this node" not in _page(operator, address)
    with as_system():
        Node.objects.update(unreachable_since=now - timedelta(minutes=2), partitioned=True)
    page = flat(_page(operator, address))
    assert "Not trusted" not in page
    assert "No answer since " in page
    assert "2 running" in page
    assert "runs to its end by the agent's clock" in page
    assert "Confirm powered off" not in page
    assert "drain it, then confirm" in page
    assert "Free now." not in page
    with as_system():
        Node.objects.update(state=Node.State.DRAINING, drain_by=now + timedelta(hours=2))
    page = flat(_page(operator, address))
    assert "Draining, unreachable" in page
    assert "Confirm powered off" in page
    assert page.count("interrupted ") == 1
    assert page.index(short.label) < page.index(long.label) < page.index("interrupted ")


@pytest.mark.parametrize("program", ["reader", "solver", "sender"])
def test_a_stopped_program_is_an_alarm_and_hides_what_it_only_seems_to_say(
    operator: Client, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = a_node(now=timezone.now() - timedelta(seconds=40))
    ages = dict.fromkeys(("reader", "solver", "worker", "beat", "sender"), 2.0)
    monkeypatch.setattr("allocation.web.fleet.attention.programs_read", lambda *_: ages.items())
    assert "has not worked for" not in _page(operator, "/ops/fleet")
    ages[program] = 90.0
    page = flat(_page(operator, "/ops/fleet"))
    assert f"{program} has not worked for 1 min 30 s" in page
    assert "All good" not in page
    assert (f"{node.name}: Unreachable" in page) == (program != "reader")


def test_only_operators_see_what_was_refused_of_a_node(client: Client) -> None:
    node = a_node(now=timezone.now())
    member = a_member(a_project())
    client.force_login(member.user)
    page = _page(client, f"/t/{member.tenant.slug}/fleet/{node.name}")
    assert "Rejected messages" not in page


def test_an_operator_sees_whether_the_promises_hold_and_a_member_does_not(
    client: Client, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int | None] = {
        "invariant_violations": None,
        "invariants_checked_seconds_ago": None,
        "failed_cycles": 0,
    }
    monkeypatch.setattr("allocation.web.fleet.fleet_pages.self_check_read", lambda _: seen)
    a_node("gpu-a1-01", now=timezone.now())
    assert "Not checked yet" in _page(operator, "/ops/fleet")
    seen |= {"invariant_violations": 0, "invariants_checked_seconds_ago": 12}
    assert "No violations" in _page(operator, "/ops/fleet")
    seen |= {"invariant_violations": 2, "failed_cycles": 3}
    page = _page(operator, "/ops/fleet")
    assert "2 violations" in page
    assert "3 failed solver cycles" in page
    member = a_member(a_project())
    client.force_login(member.user)
    assert "2 violations" not in _page(client, f"/t/{member.tenant.slug}/fleet")


def test_an_operator_pins_the_mode_of_a_gpu_on_its_page(client: Client) -> None:
    node = a_node(now=timezone.now())
    client.force_login(an_operator())
    url = f"/ops/fleet/{node.name}/0"
    assert "Mode" in _page(client, url)
    answer = client.post(f"{url}/mode", {"mode": "whole", "note": "for the course"})
    assert (answer.status_code, answer["Location"]) == (302, url)
    page = _page(client, url)
    assert "Whole now · pinned to whole<" in page
    assert '<option value="whole" selected>Whole only</option>' in page
    assert "pinned it to whole GPU: for the course." in _page(client, f"/ops/fleet/{node.name}")
    assert client.post(f"{url}/mode", {"mode": "quarter"}).status_code == 422


def test_nobody_else_can_pin_a_mode(client: Client) -> None:
    node = a_node(now=timezone.now())
    client.force_login(a_member(a_project()).user)
    assert client.post(f"/ops/fleet/{node.name}/0/mode", {"mode": "whole"}).status_code == 404
