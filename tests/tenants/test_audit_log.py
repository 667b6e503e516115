"""The logs as people read them: pages, CSV and REST, with filters, and behind the wall."""

import ast
import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.test import Client

from portal.storage.audit_sources import audit_seal_all
from tenants.audit import acting_from, audit_record, platform_record
from tenants.models import AuditEntry, GpuClass, Tenant, Tier, User
from tenants.rules.audit_words import ACTIONS, changes_of
from tenants.services.sealed_log.search import PAGE
from tests.api.builders import Api, Site, a_site, said
from tests.builders import a_tenant, a_tenant_admin, a_user, an_operator
from tests.roles import as_owner, as_system
from tests.servers.servers import ROOT
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 22, 30, tzinfo=UTC)
WRITES_LOG = re.compile(r"audit|_note|_record|platform_record|_entry$")
ACTION = re.compile(r"[a-z_]+\.[a-z_]+")
HOSTILE = "=cmd()|<script>"


@pytest.fixture
def operator() -> User:
    return an_operator("olga")


@pytest.fixture
def page(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def drained(operator: User | None, name: str, *, at: datetime = NOW) -> None:
    with as_system(), acting_from("192.0.2.7"):
        platform_record(
            operator_id=operator.id if operator else None,
            action="node.drained",
            target=("node", name),
            now=at,
            before={"state": "ready"},
            after={"state": "draining", "reason": HOSTILE},
        )


def cancelled(tenant: Tenant, user: User, *, at: datetime = NOW) -> None:
    with as_system():
        audit_record(
            tenant_id=tenant.id,
            actor_id=user.id,
            action="booking.cancel",
            target=("booking", "b1"),
            now=at,
            detail={"label": "BK-7", "state": "cancelled"},
        )


def test_an_entry_says_who_did_what_to_what_and_from_where(page: Client, operator: User) -> None:
    drained(operator, "gpu-a1-01")
    answer = page.get("/ops/log")
    text = answer.content.decode()
    (row,) = answer.context["rows"]
    assert (row.who, row.words, row.name) == ("olga", ("drained ", ""), "gpu-a1-01")
    assert '<a class="link" href="/ops/fleet/gpu-a1-01">gpu-a1-01</a>' in text
    assert [(each.name, each.before, each.after) for each in row.changes] == [
        ("state", "ready", "draining"),
        ("reason", "", HOSTILE),
    ]
    assert row.address == "192.0.2.7"
    assert "<script>" not in text.partition("<main")[2]
    # 23:30 of the reader's own day, in Berlin.
    assert "Fri 20 Nov 23:30:00" in text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["b", "a"]),
        ("who=OLGA", ["a"]),
        ("who=nobody", []),
        ("about=B", ["b"]),
        ("kind=node", ["b", "a"]),
        ("kind=tier", []),
        ("since=2026-11-21", ["b"]),
        ("until=2026-11-20", ["a"]),
        ("since=2026-11-20&until=2026-11-21", ["b", "a"]),
        # What can't be read filters nothing, and the field says so.
        ("since=yesterday", ["b", "a"]),
        ("since=0001-01-01&until=9999-12-31&after=_&kind=", ["b", "a"]),
    ],
)
def test_the_log_is_filtered(page: Client, operator: User, query: str, found: list[str]) -> None:
    drained(operator, "a")
    drained(None, "b", at=NOW + timedelta(hours=1))
    answer = page.get(f"/ops/log?{query}")
    assert answer.status_code == 200
    assert [row.name for row in answer.context["rows"]] == found
    rows = list(csv.reader(io.StringIO(page.get(f"/ops/log.csv?{query}").content.decode())))
    assert [row[4] for row in rows[1:]] == found


def test_page_csv_and_sentences_have_the_labels_of_classes_and_tiers(page: Client, operator: User) -> None:
    """The fields of REST have slugs."""
    site = a_site()
    with as_owner():
        GpuClass.objects.update_or_create(slug="h100", defaults={"label": "H100 80 GB"})
        Tier.objects.update_or_create(slug="spot", defaults={"name": "Low cost", "priority": 1})
    quota = {"tenant": "helix", "gpu_class": "h100"}
    prices = {"h100 spot": "1.68", "h100 spot 1g.10gb in peak hours": "2.00", "set-up in spot": "1.00"}
    rule = {"tiers": ["spot"], "classes": "h100, b200"}
    with as_system():
        for action, target, after in (
            ("quota.set", ("quota", "q1"), quota),
            ("prices.published", ("price_book", "2"), prices),
            ("tier.set", ("tier", "spot"), rule),
        ):
            platform_record(operator.id, action, target, NOW, before={}, after=after)
    *_, set_, priced, named = page.get("/ops/log?until=2026-11-20").context["rows"]
    assert (named.name, set_.name) == ("helix H100 80 GB", "Low cost")
    assert sorted(each.name for each in priced.changes) == [
        "H100 80 GB Low cost",
        "H100 80 GB Low cost 1g.10gb in peak hours",
        "set-up in Low cost",
    ]
    assert [each.after for each in set_.changes] == ["Low cost", "H100 80 GB, b200"]
    assert [each.name for each in page.get("/ops/log?about=low+cost&until=2026-11-20").context["rows"]] == [
        "Low cost"
    ]
    text = page.get("/ops/log.csv?until=2026-11-20").content.decode()
    assert not re.search(r"\b(h100|spot)\b", text), text
    assert ",tier,Low cost," in text
    rows = said(site.operator.get("audit", log="platform", kind="tier"))["items"]
    (row,) = (each for each in rows if each["after"] == rule)
    assert (row["object"], row["sentence"]) == ("spot", "olga set the tier Low cost")


def test_pages_follow_each_other_without_a_gap(page: Client, operator: User) -> None:
    # Many in the same instant.
    for number in range(PAGE + 10):
        drained(operator, f"n{number}", at=NOW + timedelta(seconds=number // 30))
    seen: list[str] = []
    address = "/ops/log?kind=node"
    while address:
        answer = page.get(address)
        seen += [row.name for row in answer.context["rows"]]
        # What comes meanwhile moves nothing.
        drained(operator, "new", at=NOW + timedelta(hours=1))
        address = answer.context["next"] and f"/ops/log{answer.context['next']}"
    assert seen == [f"n{number}" for number in reversed(range(PAGE + 10))]


def test_csv_has_all_values_and_no_formula(page: Client, operator: User) -> None:
    with as_system():
        platform_record(operator.id, "=1+1", ("node", "@x"), NOW, after={"a": 1})
    head, row = csv.reader(io.StringIO(page.get("/ops/log.csv").content.decode()))
    assert head[:5] == ["time", "who", "action", "kind", "object"]
    assert row == [NOW.isoformat(), "olga", "'=1+1", "node", "'@x", "", '{"a": 1}', "", ""]


def test_the_page_says_how_far_the_chain_is_sealed_and_when_it_was_verified(
    page: Client, operator: User
) -> None:
    drained(operator, "a")
    assert "nothing sealed yet" in page.get("/ops/log").content.decode()
    with as_system():
        audit_seal_all(NOW + timedelta(minutes=1))
        call_command("audit_verify", stdout=io.StringIO())
    text = page.get("/ops/log").content.decode()
    # The verification is an entry itself, and waits for the next seal.
    assert "20 Nov 2026 23:31:00, seal 1" in text
    assert "1 entry" in text
    assert re.search(r"\d+ chains? intact", flat(text))


def test_a_tenants_admin_reads_the_tenants_log_alone(page: Client, operator: User) -> None:
    own, other = a_tenant("own"), a_tenant("other")
    admin, outsider = a_tenant_admin(own).user, a_tenant_admin(other).user
    drained(operator, "gpu-a1-01")
    cancelled(own, admin)
    cancelled(other, outsider)
    client = Client()
    client.force_login(admin)
    answer = client.get("/t/own/log")
    (row,) = answer.context["rows"]
    assert (row.who, row.name, row.href) == (admin.username, "BK-7", "/t/own/bookings/BK-7")
    assert client.get("/t/other/log").status_code == 404
    assert client.get("/ops/log").status_code == 404
    assert len(client.get("/t/own/log.csv").content.decode().splitlines()) == 2


def test_rest_has_both_logs_for_those_who_may_read_them() -> None:
    site: Site = a_site()
    drained(site.people["operator"], "gpu-a1-01")
    cancelled(site.tenant, site.people["admin"])
    cancelled(site.other_project.tenant, site.people["outsider"])
    (entry,) = said(site.admin.get("audit", kind="booking"))["items"]
    assert entry["sentence"] == "ada cancelled booking BK-7"
    assert entry["detail"] == {"label": "BK-7", "state": "cancelled"}
    (entry,) = said(site.operator.get("audit", log="platform", kind="node"))["items"]
    assert (entry["before"], entry["address"]) == ({"state": "ready"}, "192.0.2.7")
    # In any case of its letters, and only in the own log, although another tenant has a BK-7, too.
    assert [each["object"] for each in said(site.admin.get("audit", object="bk-7"))["items"]] == [
        entry["object"] for entry in said(site.admin.get("audit", kind="booking"))["items"]
    ]
    first = said(site.admin.get("audit", limit="1"))
    rest = said(site.admin.get("audit", limit="200", cursor=first["next"]))["items"]
    with as_system():
        count = AuditEntry.objects.filter(tenant=site.tenant).count()
    assert len(rest) == count - 1
    for who in (site.researcher, site.lead, site.viewer, site.outsider):
        assert who.get("audit").status_code == 403
    for who in (site.admin, site.lead):
        assert who.get("audit", log="platform").status_code == 403
    # A cursor of one log fits no other.
    assert _code(site.operator, cursor=first["next"], log="platform") == "bad_cursor"


def test_changes_leave_out_documents_and_say_values_as_people_do() -> None:
    nested = {"before": {"by": "x"}, "after": {"document": {"a": 1}, "is_open": True, "by": None}}
    assert [(each.name, each.after) for each in changes_of(nested)] == [
        ("drain by", "none"),
        ("open", "yes"),
    ]
    # What a new thing doesn't have is no line, and a time is that of the reader.
    until = "2027-01-15T09:00:00+00:00"
    new = {"after": {"cost": None, "first": False, "state": "requested", "until": until}}
    berlin = [(each.name, each.after) for each in changes_of(new, ZoneInfo("Europe/Berlin"))]
    assert berlin == [("until", "15 Jan 2027 10:00")]
    assert [each.after for each in changes_of(new)] == ["15 Jan 2027 09:00 UTC"]


def test_changes_are_in_cores_and_have_the_range_of_a_day() -> None:
    cores = {"gpu_class": "CPU cores", "guaranteed_units": 24 * 56_000}
    of_zone = {"price": ["0.12"] * 8 + ["0.30"] * 16}
    found = changes_of({"after": cores | of_zone}, UTC, {"CPU cores"})
    assert [each.after for each in found] == ["CPU cores", "24 cores", "0.12 to 0.30"]


def test_changes_of_quotas_and_money_are_in_gpus_and_cents() -> None:
    quota = {"guaranteed_units": 336_000, "lend_limit_units": None, "borrow_limit_units": 8_000}
    plan = {"gpu_class_id": "h100", "gpus": 4, "most_cost": "80.000000", "rate": "0.125000"}
    found = [(each.name, each.after) for each in changes_of({"after": quota | plan})]
    assert found == [
        ("guaranteed", "6 GPUs"),
        ("lends at most", "no limit"),
        ("borrows at most", "0.143 GPUs"),
        ("GPU class", "h100"),
        ("GPUs", "4"),
        ("at most", "80.00"),
        ("rate", "0.125000"),
    ]


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_text_that_reads_like_a_time_outside_of_the_calendar_stays_a_text(text: str) -> None:
    """Somebody may call a project so; a page that fails for it would be gone for all."""
    (found,) = changes_of({"after": {"external_ref": text}}, ZoneInfo("Europe/Berlin"))
    assert found.after == text


def _code(api: Api, **query: str) -> str:
    return str(json.loads(api.get("audit", **query).content)["code"])


def test_the_log_shows_no_name_of_an_erased_account_and_its_seal_verifies(page: Client) -> None:
    person = a_user("mara.lind")
    with as_system():
        after = {"username": "mara.lind", "has_email": True}
        platform_record(None, "account.created", ("user", person.pk), NOW, after=after)
        assert audit_seal_all(NOW + timedelta(minutes=1)) > 0
    assert "mara.lind" in page.get("/ops/log?about=mara.lind").content.decode()
    with as_owner():
        User.objects.filter(id=person.pk).update(username=f"erased-{person.pk}")
    for address in ("/ops/log", "/ops/log.csv"):
        shown = page.get(address).content.decode()
        assert "mara.lind" not in shown, address
        assert f"erased-{person.pk}" in shown, address
    assert "account.created" not in page.get("/ops/log.csv?about=mara.lind").content.decode()
    with as_system():
        call_command("audit_verify", stdout=io.StringIO())


def test_the_log_has_words_for_every_action_that_the_code_writes() -> None:
    unknown = {
        f"{path.relative_to(ROOT)}: {action}"
        for app in ("allocation", "billing", "portal", "tenants")
        for path in (ROOT / app).rglob("*.py")
        for action in _actions_written(ast.parse(path.read_text(encoding="utf-8")))
        if action not in ACTIONS
    }
    assert unknown == set()


def _actions_written(module: ast.Module) -> Iterator[str]:
    """The literal actions in calls of the functions that write to the log."""
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and WRITES_LOG.search(ast.unparse(call.func)):
            given = (*call.args, *(each.value for each in call.keywords))
            texts = (part for each in given for part in ast.walk(each))
            for text in texts:
                if isinstance(text, ast.Constant) and ACTION.fullmatch(str(text.value)):
                    yield str(text.value)
