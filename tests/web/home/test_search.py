"""The search of the top bar: everything that a reader may open, and nothing else."""

import psycopg
import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from allocation.queries.bookings.booking_list import booking_search_condition, search_results
from allocation.queries.bookings.timelines.timeline import bookings_visible
from tenants.models import Membership, User
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, a_user, an_actor, an_operator
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.web.fleet_builders import a_booking, a_node

MANY = """
INSERT INTO allocation_booking SELECT (jsonb_populate_record(b, jsonb_build_object(
  'id', gen_random_uuid(), 'number', 100000 + n, 'name', 'train-' || md5(n::text),
  'submitted', b.submitted - n * interval '1 minute'))).*
FROM allocation_booking b, generate_series(1, %s) n WHERE b.id = %s
"""


def _client(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def _found(member: Membership, text: str) -> str:
    answer = _client(member).get(f"/t/{member.tenant.slug}/search", {"q": text, "part": "list"})
    assert answer.status_code == 200
    return answer.content.decode()


def _mara() -> User:
    user = a_user("mara")
    with as_owner():
        User.objects.filter(id=user.id).update(first_name="Mara", last_name="Lindner")
    return user


@pytest.mark.turn
@pytest.mark.django_db
def test_each_kind_is_found_by_any_of_its_words() -> None:
    project = a_project(name="Protein folding", slug="folding")
    mara = a_member(project, user=_mara())
    booking = a_booking(mara, now=timezone.now(), name="ablation seven")
    a_node("gpu-a1-01", now=timezone.now(), gpus=1)
    href = f'href="/t/{project.tenant.slug}/bookings/{booking.label}"'
    for text in (
        "ablat",
        "SEVEN abl",
        "lindner",
        "mara protein",
        booking.label,
        str(booking.number),
    ):
        assert href in _found(mara, text), text
    assert f'href="/t/{project.tenant.slug}/p/folding"' in _found(mara, "fold")
    assert "bookings?q=mara" in _found(mara, "Lind")
    assert "/fleet/gpu-a1-01" in _found(mara, "a1-01")
    assert f'href="/t/{project.tenant.slug}/budgets"' in _found(mara, "money")
    assert "Book “xyz”" in _found(mara, "xyz")


@pytest.mark.django_db
def test_nothing_of_another_tenant_or_of_a_foreign_project_is_found() -> None:
    now = timezone.now()
    mine = a_member(a_project(name="Mine"))
    colleague = a_member(a_project(mine.tenant, name="Orchid"), user=a_user("orchid-person"))
    outsider = a_member(a_project(a_tenant(), name="Orchid"), user=a_user("orchid-outsider"))
    for member in (colleague, outsider):
        a_booking(member, now=now, name="orchid-run")
    with tenant_tx(mine.tenant_id):
        found = search_results(an_actor(mine), "orchid")
    assert (found.bookings, found.projects, found.people) == ((), (), ())
    admin = a_tenant_admin(mine.tenant)
    with tenant_tx(mine.tenant_id):
        found = search_results(an_actor(admin), "orchid")
    assert [row.owner_id for row in found.bookings] == [colleague.user_id]
    assert [each.user_id for each in found.people] == [colleague.user_id]
    assert [each.tenant_id for each in found.projects] == [mine.tenant_id]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("bk-12", "bookings/BK-12"),
        ("2 h100 6h", "book?q=2+h100+6h"),
        ("1g.10gb now", "book?q=1g.10gb+now"),
    ],
)
def test_enter_opens_a_number_and_quotes_a_request(text: str, target: str) -> None:
    mine = a_member(a_project())
    a_node(now=timezone.now(), gpus=1)
    answer = _client(mine).get(f"/t/{mine.tenant.slug}/search", {"q": text})
    assert answer["Location"] == f"/t/{mine.tenant.slug}/{target}"


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["", "\x00", "%", "_", "a\x00b", "' or 1=1 --", "x" * 5000, "9" * 30])
def test_hostile_words_find_nothing_and_break_nothing(text: str) -> None:
    mine = a_member(a_project(name="Plain", slug="plain"))
    a_booking(mine, now=timezone.now(), name="plain")
    answer = _client(mine).get(f"/t/{mine.tenant.slug}/search", {"q": text})
    assert answer.status_code == 200
    assert "/bookings/BK-" not in answer.content.decode()


@pytest.mark.long
def test_a_search_among_many_reads_the_narrow_index_alone(real_db: Servers) -> None:
    mine = a_member(a_project())
    seed = a_booking(mine, now=timezone.now(), name="needle")
    with as_system(), connection.cursor() as cursor:
        cursor.execute(MANY, [2_000, seed.id])
    with psycopg.connect(real_db.owner_dsn, autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE allocation_booking")
    with tenant_tx(mine.tenant_id):
        actor = an_actor(mine)
        with connection.cursor() as cursor:
            # So few rows are read as quickly otherwise; whether the index suffices is the same.
            cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        for text in ("needle", "nowhere"):
            rows = (
                bookings_visible(actor).filter(booking_search_condition(actor, text)).order_by("-submitted")
            )
            plan = rows.values_list("id", flat=True)[:6].explain()
            assert "Index Only Scan using booking_search" in plan, plan
        assert [row.id for row in search_results(actor, "needle").bookings] == [seed.id]


@pytest.mark.django_db
def test_the_palette_offers_pages_before_anything_is_typed() -> None:
    project = a_project(name="Protein folding", slug="folding")
    page = _found(a_member(project), "")
    assert f'href="/t/{project.tenant.slug}/book"' in page
    assert "hit-book" not in page, "nothing to book yet"
    keys = _client(a_member(project)).get("/keys?part=1").content.decode()
    assert "<kbd>Ctrl K</kbd>" in keys
    assert "<html" not in keys


@pytest.mark.django_db
def test_operators_find_bookings_of_all_organisations_and_others_do_not() -> None:
    member = a_member(a_project(name="Protein folding", slug="folding"))
    booking = a_booking(member, now=timezone.now(), name="ablation seven")
    a_node("gpu-a1-01", now=timezone.now(), gpus=1)
    operator = Client()
    operator.force_login(an_operator())

    def found(text: str) -> str:
        return operator.get("/ops/search", {"q": text, "part": "list"}).content.decode()

    slug = member.tenant.slug
    assert f'href="/ops/bookings/{booking.id}"' in found(booking.label)
    assert f'href="/ops/bookings?tenant={slug}"' in found(slug)
    assert 'href="/ops/fleet/gpu-a1-01"' in found("a1-01")
    assert 'href="/ops/maintenance"' in found("drain")
    assert 'href="/ops/overview"' in found("")
    assert operator.get("/ops/search", {"q": "nothing at all"}).status_code == 200
    assert found("\x00%") == found("%")
    assert _client(member).get("/ops/search", {"q": "a"}).status_code == 404
    assert "/ops/" not in _found(member, "maintenance")
