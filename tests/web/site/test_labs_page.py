"""Labs, limits of persons and limits at some times as the page shows and takes them."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, Gpu
from allocation.queries.limits.tree import OwnerUse, _with_flow
from allocation.web.limits.words import use_words, window_words
from tenants.models import (
    Lab,
    LabLead,
    LabQuota,
    PersonQuota,
    Project,
    Quota,
    QuotaWindow,
    Tenant,
)
from tests.builders import (
    UNITS_PER_GPU,
    a_member,
    a_project,
    a_quota,
    a_tenant,
    a_tenant_admin,
    a_user,
)
from tests.builders_allocation import a_booking, a_budget, a_node, an_allocation
from tests.roles import as_system

PAGE = "/t/own/labs"
GPU = UNITS_PER_GPU


def _text(content: bytes) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", content.decode())).split())


def test_who_lends_is_named_and_the_sums_agree() -> None:
    rows = [
        OwnerUse("Vision", 1, 10 * GPU, 8 * GPU, None),
        OwnerUse("Robotics", 1, 1 * GPU, 4 * GPU, None, lends=2 * GPU),
        OwnerUse("Speech", 1, 3 * GPU, 4 * GPU, 4 * GPU, outside=GPU),
        OwnerUse("Idle", 1, 0, 0, None),
    ]
    vision, robotics, speech, idle = _with_flow(rows)
    assert use_words(vision) == "8 own + 2 borrowed from Robotics"
    assert use_words(speech) == "2 own + 1 borrowed from other organisations"
    spare = OwnerUse("Spare", 1, 5 * GPU, 2 * GPU, None, inside=GPU, lenders=("Vision",))
    assert use_words(spare) == "2 own + 2 unassigned + 1 borrowed from Vision"
    assert (robotics.lent, use_words(robotics), use_words(idle)) == (
        2 * GPU,
        "1 in use",
        "0 in use",
    )
    assert sum(row.lent for row in (vision, speech, idle)) == 0


def test_times_in_words() -> None:
    night = QuotaWindow(weekdays=[4, 5], first_hour=22, end_hour=6, zone="Europe/Berlin")
    assert window_words(night) == "Fri Sat, 22:00–06:00 (Europe/Berlin)"
    until = QuotaWindow(last_day=datetime(2027, 1, 31, tzinfo=UTC).date(), zone="UTC")
    assert window_words(until) == "every day, until 31 Jan 2027 (UTC)"


@pytest.mark.django_db
class TestPage:
    @pytest.fixture
    def tenant(self) -> Tenant:
        tenant = a_tenant("own")
        a_quota(tenant, guaranteed=8, limit=12)
        a_project(tenant, "vision")
        a_project(tenant, "speech")
        return tenant

    def post(self, client: Client, **form: Any) -> str:  # noqa: ANN401  form values
        answer = client.post(PAGE, form, follow=True)
        return _text(answer.content)

    def test_an_admin_sets_up_a_lab_and_its_limits(self, client: Client, tenant: Tenant) -> None:
        client.force_login(a_tenant_admin(tenant).user)
        assert "No labs" in _text(client.get(PAGE).content)
        self.post(client, act="create", name="Robotics", slug="robotics")
        assert "Vision is in Robotics" in self.post(client, act="move", project="vision", lab="robotics")
        share = {
            "lab": "robotics",
            "gpu_class": "h100",
            "guaranteed": "9",
            "borrow": "",
            "lend": "2",
        }
        refused = client.post(PAGE, {"act": "quota", **share})
        assert refused.status_code == 422
        assert "9 is 1 too many: 8 would work" in _text(refused.content)
        assert 'value="9"' in refused.content.decode()
        page = self.post(client, act="quota", **{**share, "guaranteed": "4"})
        assert "Robotics: 4 H100 guaranteed" in page
        assert "Robotics 4 guaranteed 0 in use Vision no quota of its own 0 in use" in page
        page = self.post(client, act="person", project="vision", username="", gpu_class="h100", limit="2")
        assert "Everybody else Vision H100 2" in page
        today = datetime.now(UTC).date()
        page = self.post(
            client,
            act="window",
            owner="lab:robotics",
            gpu_class="h100",
            at_most="1",
            first_day="",
            last_day=str(today + timedelta(days=3)),
            first_hour="0",
            end_hour="24",
        )
        assert "Robotics 4 guaranteed, limit 1 now" in page
        self.limit_of_a_person(client)
        with as_system():
            window = QuotaWindow.objects.get()
            assert LabQuota.objects.get().lend_limit_units == 2 * GPU
            assert PersonQuota.objects.get().limit_units == 2 * GPU
        self.removed(client, window)

    def test_what_a_tenants_guarantee_covers_now_is_not_borrowed(
        self, client: Client, tenant: Tenant
    ) -> None:
        now = timezone.now()
        with as_system():
            vision = Project.objects.get(slug="vision")
        a_quota(tenant, project=vision, guaranteed=1)
        admin = a_tenant_admin(tenant).user
        a_budget(vision, now=now)
        booking = a_booking(vision, admin.id, state="active", starts=now, now=now)
        node = a_node(gpus=2)
        with as_system():
            gpus = list(Gpu.objects.filter(node=node))
        for gpu in gpus:
            an_allocation(booking, gpu, starts=now, state="active")
        with as_system():
            # What it borrows at some time until it ends, because others of its tenant start later.
            Booking.objects.filter(id=booking.id).update(borrowed_units=GPU)
        client.force_login(admin)
        page = _text(client.get(PAGE).content)
        assert "2 in use" in page
        assert "borrowed from other organisations" not in page
        with as_system():
            Quota.objects.filter(project=None).update(guaranteed_units=GPU)
        page = _text(client.get(PAGE).content)
        assert "1 own + 1 borrowed from other organisations" in page

    def limit_of_a_person(self, client: Client) -> None:
        """A limit at some times of one person, everywhere."""
        with as_system():
            person = a_member(Project.objects.get(slug="vision"), user=a_user("kim")).user
        page = self.post(
            client,
            act="window",
            owner="",
            username=person.username,
            gpu_class="h100",
            at_most="3",
            first_hour="22",
            end_hour="6",
        )
        assert "kim in The whole organisation H100 3 every day, 22:00–06:00" in page
        with as_system():
            row = QuotaWindow.objects.get(user=person)
        self.post(client, act="remove", window=str(row.id))

    def removed(self, client: Client, window: QuotaWindow) -> None:
        """Takes back what the test has set, and posts wrong forms."""
        self.post(client, act="remove", window=str(window.id))
        self.post(client, act="person", project="vision", username="", gpu_class="h100", limit="")
        self.post(client, act="move", project="vision", lab="")
        self.post(client, act="rename", lab="robotics", name="Robots")
        assert "Robots is archived" in self.post(client, act="archive", lab="robotics")
        with as_system():
            counts = [each.objects.count() for each in (QuotaWindow, PersonQuota, LabQuota)]
        assert counts == [0, 0, 0]
        for wrong in ({"first_day": "soon"}, {"first_hour": "x"}, {"at_most": "many"}):
            form = {"act": "window", "owner": "project:vision", "gpu_class": "h100", "at_most": "1"}
            assert client.post(PAGE, {**form, **wrong}).status_code == 422, wrong

    def test_a_lab_lead_sees_the_labs_projects_and_nobody_elses(self, client: Client, tenant: Tenant) -> None:
        person = a_member(a_project(tenant, "other"), user=a_user("lena")).user
        client.force_login(person)
        assert "Vision" not in _text(client.get(PAGE).content)
        assert client.post(PAGE, {"act": "create", "name": "X", "slug": "x"}).status_code == 403
        with as_system():
            lab = Lab.objects.create(tenant=tenant, slug="robotics", name="Robotics")
            tenant.project_set.filter(slug="vision").update(lab=lab)
            LabLead.objects.create(tenant=tenant, lab=lab, user=person)
        page = _text(client.get(PAGE).content)
        assert "Vision" in page
        assert "Speech" not in page
        self.post(client, act="person", project="vision", username="", gpu_class="h100", limit="2")
        with as_system():
            assert PersonQuota.objects.get().limit_units == 2 * GPU
            LabQuota.objects.create(tenant=tenant, lab=lab, gpu_class_id="h100", guaranteed_units=4 * GPU)
        html = client.get("/t/own/quotas").content.decode()
        assert ('id="guaranteed-h100-vision"' in html, 'id="guaranteed-h100-other"' in html) == (
            True,
            False,
        )

        def share(project: str, guaranteed: str) -> dict[str, str]:
            return {"act": "save", f"guaranteed:h100:{project}": guaranteed}

        kept = client.post("/t/own/quotas", share("vision", "3"), follow=True)
        assert "Vision, H100: 3 guaranteed" in _text(kept.content)
        over = client.post("/t/own/quotas", share("vision", "5"))
        assert over.status_code == 422
        assert "The lab Robotics is guaranteed 4" in _text(over.content)
        for project in ("other", "speech"):
            foreign = client.post("/t/own/quotas", share(project, "1"))
            assert foreign.status_code in (403, 404)
