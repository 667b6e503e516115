"""/metrics: who may read it, and that it says what is there without naming tenants."""

import json
import re
from datetime import timedelta
from ipaddress import ip_network

import pytest
import yaml
from django.core.cache import cache
from django.test import Client, override_settings
from django.utils import timezone

from allocation.models import Booking
from allocation.services.record.counters import counter_add
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from portal.api.metrics import metrics_all
from portal.traffic import BUCKETS_MS
from tenants.outbox import outbox_add
from tests.agent.report.test_metrics import parsed
from tests.api.builders import Site
from tests.builders import a_member, a_project, a_tenant
from tests.roles import as_system
from tests.servers.servers import ROOT
from tests.web.fleet_builders import a_booking, a_node

pytestmark = pytest.mark.django_db
ANYBODY = [ip_network("127.0.0.0/8")]
PROXY = {"HTTP_X_FORWARDED_FOR": "10.1.2.3"}


def read(**headers: str) -> tuple[int, str]:
    answer = Client().get("/metrics", **headers)  # type: ignore[arg-type]
    return answer.status_code, answer.content.decode()


@override_settings(METRICS_ALLOW=ANYBODY)
def test_only_allowed_addresses_and_operators_may_read_it() -> None:
    assert read(REMOTE_ADDR="127.0.0.1")[0] == 200
    assert read(REMOTE_ADDR="203.0.113.9")[0] == 401
    assert read(REMOTE_ADDR="")[0] == 401
    assert read(REMOTE_ADDR="127.0.0.1", **PROXY)[0] == 401
    assert read(REMOTE_ADDR="127.0.0.1", HTTP_FORWARDED="for=10.1.2.3")[0] == 401
    assert read(REMOTE_ADDR="127.0.0.1", HTTP_AUTHORIZATION="Bearer x", **PROXY)[0] == 401
    with override_settings(METRICS_ALLOW=[]):
        assert read(REMOTE_ADDR="127.0.0.1")[0] == 401


def test_nobody_reads_it_unless_said_so_not_even_from_the_same_machine() -> None:
    assert read(REMOTE_ADDR="127.0.0.1")[0] == 401
    assert read(HTTP_AUTHORIZATION="Bearer ")[0] == 401


@override_settings(METRICS_TOKEN="m" * 32)
def test_prometheus_has_a_token_that_opens_nothing_else() -> None:
    token = f"Bearer {'m' * 32}"
    assert read(HTTP_AUTHORIZATION=token, **PROXY)[0] == 200
    assert read(HTTP_AUTHORIZATION=f"{token}m")[0] == 401
    assert read(HTTP_AUTHORIZATION="Bearer é")[0] == 401
    assert Client().get("/api/v1/me", HTTP_AUTHORIZATION=token).status_code == 401


@override_settings(METRICS_ALLOW=ANYBODY)
def test_it_tells_bookings_nodes_queues_and_what_waits() -> None:
    member, now = a_member(a_project(a_tenant("secret-lab", name="Secret Lab"))), timezone.now()
    a_booking(member, now=now, name="top secret")
    a_node("n1", now=now)
    a_node("n2", now=now, silent_for=timedelta(minutes=5))
    with as_system():
        outbox_add(tenant_id=member.tenant_id, kind="x", payload={}, now=now - timedelta(hours=1))
        counter_add("telemetry_absurd", 3)
        counter_add("telemetry_absurd", 4)
    status, text = read()
    metrics = parsed(text)
    assert status == 200
    assert metrics["gpu_portal_bookings", (("state", "active"),)] == 1
    assert metrics["gpu_portal_bookings", (("state", "failed"),)] == 0
    assert metrics["gpu_portal_nodes", (("state", "ready"),)] == 2
    assert metrics["gpu_portal_outbox_waiting", ()] == 1
    assert metrics["gpu_portal_outbox_lag_seconds", ()] == pytest.approx(3600, abs=60)
    assert metrics["gpu_portal_telemetry_absurd_total", ()] == 7
    assert metrics["gpu_portal_agent_refused_total", (("node", "n1"),)] == 0
    assert ("gpu_portal_solve_seconds", ()) not in metrics
    for word in ("secret", "Secret", member.user.username, str(member.tenant_id)):
        assert word not in text


@override_settings(METRICS_ALLOW=ANYBODY)
def test_broken_promises_are_told_once_somebody_has_looked() -> None:
    cache.delete("watch:invariants")
    assert ("gpu_portal_invariant_violations", ()) not in parsed(read()[1])
    cache.set("watch:invariants", {"violations": 2, "at": timezone.now().timestamp()})
    assert parsed(read()[1])["gpu_portal_invariant_violations", ()] == 2
    cache.delete("watch:invariants")


@override_settings(BROKER_REDIS_URL="redis://127.0.0.1:1/0", METRICS_ALLOW=ANYBODY)
def test_without_redis_queues_are_unknown_and_the_rest_is_told() -> None:
    metrics = parsed(read()[1])
    assert metrics["gpu_portal_redis_up", ()] == 0
    assert not any(name == "gpu_portal_queue_messages" for name, _ in metrics)
    assert ("gpu_portal_outbox_waiting", ()) in metrics


def test_an_operators_token_opens_it_from_anywhere_and_nobody_elses(site: Site) -> None:
    answers = {
        name: read(REMOTE_ADDR="203.0.113.9", HTTP_AUTHORIZATION=f"Bearer {api.token}")[0]
        for name, api in {
            "operator": site.operator,
            "admin": site.admin,
            "outsider": site.outsider,
        }.items()
    }
    assert answers == {"operator": 200, "admin": 403, "outsider": 403}


@override_settings(METRICS_ALLOW=ANYBODY)
def test_answers_are_counted_by_route_and_status_and_their_time_by_surface(site: Site) -> None:
    for _ in range(2):
        # Each client is a process of its own, which adds up what it counted with its first answer.
        assert Client().get("/api/v1/bookings/BK-77").status_code == 401
    Client().get("/no/such/page")
    metrics = parsed(read()[1])
    labels = (
        ("method", "GET"),
        ("route", "/api/v1/bookings/<booking:reference>"),
        ("status", "401"),
    )
    assert metrics["gpu_portal_http_requests_total", labels] == 2
    unknown = (("method", "GET"), ("route", "none"), ("status", "404"))
    assert metrics["gpu_portal_http_requests_total", unknown] == 1
    name = "gpu_portal_http_request_seconds"
    assert metrics[f"{name}_count", (("surface", "api"),)] == 2
    ends = [*(repr(end / 1000) for end in BUCKETS_MS), "+Inf"]
    steps = [metrics[f"{name}_bucket", (("le", end), ("surface", "api"))] for end in ends]
    assert steps == sorted(steps)
    assert steps[-1] == 2
    assert metrics["gpu_portal_program_age_seconds", (("program", "web"),)] < 60


@override_settings(METRICS_ALLOW=ANYBODY)
def test_it_tells_how_long_people_waited(site: Site) -> None:
    now = timezone.now()
    for seconds in (4, 8):
        asked = now - timedelta(minutes=3)
        row = a_booking(a_member(a_project(a_tenant(f"t{seconds}"))), now=now)
        with as_system():
            Booking.objects.filter(id=row.id).update(
                submitted=asked, first_planned_start=asked + timedelta(seconds=30)
            )
            row.refresh_from_db()
            for kind, after in (("requested", 0), ("queued", seconds), ("started", 10 * seconds)):
                at = asked + timedelta(seconds=after)
                event_add(row, kind=kind, sentence=event_text("unplaceable"), now=at)
    metrics = parsed(read()[1])
    median = (("quantile", "0.5"),)
    assert metrics["gpu_portal_request_to_decision_seconds", median] == 6
    assert metrics["gpu_portal_request_to_start_seconds", median] == 60
    assert metrics["gpu_portal_start_lateness_seconds", median] == 30
    assert metrics["gpu_portal_request_to_decision_seconds_bookings", ()] == 2
    assert metrics["gpu_portal_database_bytes", ()] > 1_000_000


def test_alerts_and_dashboard_speak_of_metrics_that_there_are() -> None:
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    dashboard = json.loads((ROOT / "deploy/grafana/gpu-portal.json").read_text())
    asked = [rule["expr"] for rule in rules] + [
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    ]
    metrics = {metric.name for metric in metrics_all(timezone.now())}
    named = {name for text in asked for name in re.findall(r"gpu_portal_\w+", text)}
    histogram = "gpu_portal_http_request_seconds"
    assert {name.removesuffix("_bucket") for name in named} <= metrics
    assert histogram in metrics
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert {"summary", "action"} <= set(rule["annotations"])
