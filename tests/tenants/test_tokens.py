"""API tokens: what they open, and when they end."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from allocation.migrations.rules.ends_once import ENDINGS
from tenants.access import Actor
from tenants.models import ApiToken, AuditEntry, KnownPerson, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import (
    token_create,
    token_revoke,
    token_rotate,
    token_verify,
    tokens_revoke,
)
from tenants.services.credentials.tokens import MAX_TOKENS, NewToken, token_store
from tests.builders import a_member, a_project, a_tenant_admin, an_actor
from tests.roles import as_owner, as_role, as_system

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)


@pytest.fixture
def actor() -> Actor:
    return an_actor(a_member(a_project()))


def _made(actor: Actor, *, days: int = 90, now: datetime = NOW) -> tuple[ApiToken, str]:
    with tenant_tx(actor.tenant_id):
        return token_create(actor=actor, name="CI", days=days, now=now)


def test_a_token_lets_its_owner_into_its_tenant(actor: Actor) -> None:
    token, clear = _made(actor)
    holder = token_verify(clear, now=NOW)
    assert holder is not None
    assert (holder.user_id, holder.tenant_slug, holder.token_id) == (
        actor.user_id,
        actor.tenant_slug,
        token.id,
    )


def test_a_token_has_the_published_form(actor: Actor) -> None:
    """Secret scanners look for it: the form is a promise."""
    _, clear = _made(actor)
    assert clear.startswith("gpup_pat_")
    assert len(clear) == len("gpup_pat_") + 38
    assert clear.isascii()


def test_a_mistyped_token_costs_no_query(actor: Actor) -> None:
    _, clear = _made(actor)
    other = "a" if clear[20] != "a" else "b"
    tampered = [clear[:20] + other + clear[21:], clear[:-1], clear + "0", clear[9:], "", "é" * 47]
    with CaptureQueriesContext(connection) as queries:
        assert [token_verify(each, now=NOW) for each in tampered] == [None] * len(tampered)
    assert len(queries) == 0


def test_a_token_with_a_right_checksum_that_nobody_made_is_nobodys(actor: Actor) -> None:
    made = [_made(actor)[1] for _ in range(2)]
    with as_owner():
        ApiToken.objects.filter(prefix=made[0][:13]).update(digest=b"\0" * 32)
    assert token_verify(made[0], now=NOW) is None
    assert token_verify(made[1], now=NOW) is not None


def test_a_token_works_until_its_last_second_and_not_in_the_next(actor: Actor) -> None:
    _, clear = _made(actor, days=1)
    ends = NOW + timedelta(days=1)
    assert token_verify(clear, now=ends - timedelta(seconds=1)) is not None
    assert token_verify(clear, now=ends) is None


def test_a_revoked_token_is_refused_at_once(actor: Actor) -> None:
    token, clear = _made(actor)
    with tenant_tx(actor.tenant_id):
        token_revoke(actor=actor, token_id=token.id, now=NOW)
        first = token_revoke(actor=actor, token_id=token.id, now=NOW + timedelta(hours=1))
    assert first.revoked == NOW, "revoking again changes nothing"
    assert token_verify(clear, now=NOW) is None


def test_only_the_owner_or_a_tenant_admin_revokes_a_token() -> None:
    project = a_project()
    owner, colleague = an_actor(a_member(project)), an_actor(a_member(project, "lead"))
    admin = an_actor(a_tenant_admin(project.tenant))
    outsider = an_actor(a_tenant_admin(a_project().tenant))
    token, clear = _made(owner)
    for actor in (colleague, outsider):
        with tenant_tx(actor.tenant_id), pytest.raises(Refused, match="not_found"):
            token_revoke(actor=actor, token_id=token.id, now=NOW)
    assert token_verify(clear, now=NOW) is not None
    with tenant_tx(admin.tenant_id):
        token_revoke(actor=admin, token_id=token.id, now=NOW)
    assert token_verify(clear, now=NOW) is None


def test_an_unknown_token_to_revoke_reads_like_a_foreign_one(actor: Actor) -> None:
    foreign, _ = _made(an_actor(a_member(a_project())))
    said = []
    for token_id in (foreign.id, uuid4()):
        with tenant_tx(actor.tenant_id), pytest.raises(Refused) as refused:
            token_revoke(actor=actor, token_id=token_id, now=NOW)
        said.append((refused.value.code, refused.value.sentence, refused.value.kind))
    assert said[0] == said[1]


def test_use_is_noted_at_most_once_a_minute(actor: Actor) -> None:
    token, clear = _made(actor)
    noted = []
    for seconds in (0, 30, 59, 60):
        token_verify(clear, now=NOW + timedelta(seconds=seconds))
        with tenant_tx(actor.tenant_id):
            noted.append(ApiToken.objects.get(id=token.id).last_used)
    assert noted == [NOW, NOW, NOW, NOW + timedelta(seconds=60)]


@pytest.mark.parametrize("days", [0, -1, 366, 10**9])
def test_a_token_lives_a_day_to_a_year(actor: Actor, days: int) -> None:
    with pytest.raises(Refused, match="bad_days"):
        _made(actor, days=days)


def test_nobody_hoards_tokens_but_ended_ones_dont_count(actor: Actor) -> None:
    for _ in range(MAX_TOKENS):
        _made(actor, days=1)
    with pytest.raises(Refused, match="too_many_tokens"):
        _made(actor)
    assert _made(actor, now=NOW + timedelta(days=1))


def _made_with(actor: Actor, maker: ApiToken, *, days: int, now: datetime = NOW) -> ApiToken:
    with tenant_tx(actor.tenant_id):
        return token_create(actor=actor, name="x", days=days, now=now, made_with=maker.id)[0]


def test_no_token_makes_a_token_that_outlives_it(actor: Actor) -> None:
    maker, _ = _made(actor, days=1)
    child = _made_with(actor, maker, days=365)
    assert child.expires == maker.expires
    grandchild = _made_with(actor, child, days=365, now=NOW + timedelta(hours=23))
    assert grandchild.expires == maker.expires
    longer, _ = _made(actor, days=90)
    assert _made_with(actor, longer, days=1).expires == NOW + timedelta(days=1)


def test_what_a_token_made_is_revoked_with_it(actor: Actor) -> None:
    maker, _ = _made(actor)
    child = _made_with(actor, maker, days=9)
    grandchild = _made_with(actor, child, days=9)
    other, _ = _made(actor)
    with tenant_tx(actor.tenant_id):
        token_revoke(actor=actor, token_id=maker.id, now=NOW)
        revoked = set(ApiToken.objects.exclude(revoked=None).values_list("id", flat=True))
    assert revoked == {maker.id, child.id, grandchild.id}
    assert other.id not in revoked


@pytest.mark.parametrize("days", [0, 1])
def test_a_token_that_has_ended_makes_no_other(actor: Actor, days: int) -> None:
    maker, _ = _made(actor, days=1)
    with tenant_tx(actor.tenant_id):
        ApiToken.objects.filter(id=maker.id).update(revoked=None if days else NOW)
    with pytest.raises(Refused, match="not_allowed"):
        _made_with(actor, maker, days=1, now=NOW + timedelta(days=days))


def test_all_own_tokens_end_at_once(actor: Actor) -> None:
    clears = [_made(actor)[1] for _ in range(3)]
    _, foreign = _made(an_actor(a_member(a_project())))
    with tenant_tx(actor.tenant_id):
        assert tokens_revoke(actor=actor, now=NOW) == 3
        assert tokens_revoke(actor=actor, now=NOW) == 0
    assert [token_verify(clear, now=NOW) for clear in clears] == [None] * 3
    assert token_verify(foreign, now=NOW) is not None


def test_making_and_revoking_is_in_the_log_without_the_token(actor: Actor) -> None:
    token, clear = _made(actor)
    with tenant_tx(actor.tenant_id):
        token_revoke(actor=actor, token_id=token.id, now=NOW)
        entries = list(AuditEntry.objects.order_by("id"))
    assert [entry.action for entry in entries] == ["token.created", "token.revoked"]
    assert {entry.actor_id for entry in entries} == {actor.user_id}
    assert clear[13:] not in str([entry.detail for entry in entries])


def test_the_clear_text_is_nowhere_in_the_database(actor: Actor) -> None:
    _, clear = _made(actor)
    token_verify(clear, now=NOW)
    secret = clear[13:]
    assert _tables_that_hold(clear[:13]) == {"tenants_apitoken"}, "the search does find things"
    assert _tables_that_hold(secret) == set()


def _tables_that_hold(text: str) -> set[str]:
    """All tables of this test's own transaction, searched as text, row by row."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE portal_system")
        cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind = 'r' AND n.nspname = 'public'"
            " AND has_table_privilege(c.oid, 'SELECT')"
        )
        for (table,) in cursor.fetchall():
            query = psycopg.sql.SQL("SELECT 1 FROM {0} WHERE {0}::text LIKE {1} LIMIT 1").format(
                psycopg.sql.Identifier(table), psycopg.sql.Literal(f"%{text}%")
            )
            cursor.execute(query)
            if cursor.fetchone():
                found.add(table)
        cursor.execute("SET LOCAL ROLE portal_web")
    return found


def _rotated(
    actor: Actor, token: ApiToken, *, hours: int = 0, by: ApiToken | None = None
) -> tuple[ApiToken, str]:
    with tenant_tx(actor.tenant_id):
        return token_rotate(
            actor=actor,
            token_id=token.id,
            overlap_hours=hours,
            now=NOW,
            made_with=by.id if by else None,
        )


def _child(actor: Actor, maker: ApiToken) -> tuple[ApiToken, str]:
    with tenant_tx(actor.tenant_id):
        return token_create(actor=actor, name="x", days=30, now=NOW, made_with=maker.id)


def _works(clear: str, *, after: timedelta = timedelta(0)) -> bool:
    return token_verify(clear, now=NOW + after) is not None


@pytest.mark.parametrize("is_by_itself", [False, True])
@pytest.mark.parametrize("hours", [0, 5])
def test_what_a_rotated_token_made_ends_with_it(actor: Actor, hours: int, *, is_by_itself: bool) -> None:
    leaked, clear = _made(actor)
    child, childs = _child(actor, leaked)
    _, grandchilds = _child(actor, child)
    _, successors = _rotated(actor, leaked, hours=hours, by=leaked if is_by_itself else None)
    overlap = timedelta(hours=hours)
    for each in (clear, childs, grandchilds):
        assert _works(each, after=overlap - timedelta(seconds=1))
        assert not _works(each, after=overlap)
    assert _works(successors, after=overlap)
    with tenant_tx(actor.tenant_id):
        ends = set(ApiToken.objects.filter(made_with__isnull=False).values_list("expires"))
    assert ends == {(NOW + overlap,)}, "the list says when they end"


def test_a_token_that_rotates_itself_makes_none_that_survives_its_revocation(
    actor: Actor,
) -> None:
    leaked, _ = _made(actor)
    first, firsts = _rotated(actor, leaked, hours=9, by=leaked)
    _, seconds = _rotated(actor, first, hours=9, by=first)
    _, children = _child(actor, first)
    assert _works(seconds)
    with tenant_tx(actor.tenant_id):
        token_revoke(actor=actor, token_id=leaked.id, now=NOW)
    assert not any(map(_works, (firsts, seconds, children)))


def test_a_rotation_by_its_person_ends_what_a_leaked_token_had_rotated_itself_into(
    actor: Actor,
) -> None:
    leaked, _ = _made(actor)
    _, stolen = _rotated(actor, leaked, hours=9, by=leaked)
    _, own = _rotated(actor, leaked)
    assert not _works(stolen)
    assert _works(own)


def test_a_child_that_is_rotated_still_ends_with_the_token_that_made_it(actor: Actor) -> None:
    parent, _ = _made(actor)
    successors = [
        _rotated(actor, child, by=child if is_by_itself else None)[1]
        for is_by_itself in (False, True)
        for child in (_child(actor, parent)[0],)
    ]
    assert all(map(_works, successors))
    _rotated(actor, parent)
    assert not any(map(_works, successors))


@pytest.mark.parametrize("how", ["revoked", "rotated", "expired"])
@pytest.mark.parametrize("rotations", [1, 3])
def test_a_child_that_other_tokens_rotate_still_ends_with_the_token_that_made_it(
    actor: Actor, rotations: int, how: str
) -> None:
    parent, _ = _made(actor)
    newest, _ = _child(actor, parent)
    for turn in range(rotations):
        # By another token, by itself, and by another one again.
        other = newest if turn == 1 else _made(actor)[0]
        newest, clear = _rotated(actor, newest, hours=5, by=other)
    _, below = _child(actor, newest)
    assert _works(clear)
    assert _works(below)
    with tenant_tx(actor.tenant_id):
        if how == "revoked":
            token_revoke(actor=actor, token_id=parent.id, now=NOW)
        if how == "expired":
            # Where a program forgets to end what a token made, the database does not.
            ApiToken.objects.filter(id=parent.id).update(expires=NOW)
    if how == "rotated":
        _rotated(actor, parent)
    assert not _works(clear)
    assert not _works(below)


def test_who_revokes_the_token_before_a_rotation_keeps_the_one_after_it(actor: Actor) -> None:
    parent, _ = _made(actor)
    old, _ = _child(actor, parent)
    _, clear = _rotated(actor, old, hours=5, by=_made(actor)[0])
    with tenant_tx(actor.tenant_id):
        token_revoke(actor=actor, token_id=old.id, now=NOW)
    assert _works(clear)


@pytest.mark.parametrize("ended", [{"revoked": NOW}, {"expires": NOW}], ids=["revoked", "expired"])
def test_the_database_asks_every_token_before_one(actor: Actor, ended: dict[str, datetime]) -> None:
    """Also where a program forgets to end what a token made."""
    parent, _ = _made(actor)
    child, _ = _child(actor, parent)
    _, grandchilds = _child(actor, child)
    assert _works(grandchilds)
    with tenant_tx(actor.tenant_id):
        ApiToken.objects.filter(id=parent.id).update(**ended)
    assert not _works(grandchilds)


@pytest.mark.parametrize("how", ["closed", "left", "disabled"])
def test_a_service_accounts_token_ends_with_the_lead_whose_token_made_it(how: str) -> None:
    project = a_project()
    lead = a_member(project, "lead")
    actor = an_actor(lead)
    maker, _ = _made(actor)
    program = a_member(project)
    new = NewToken("CI", NOW + timedelta(days=9), ["read"], made_with=maker.id)
    new.holder_id = program.user_id
    with tenant_tx(actor.tenant_id):
        _, clear = token_store(actor, new, NOW)
    assert _works(clear)
    with as_system():
        if how == "closed":
            with as_owner():
                User.objects.filter(id=lead.user_id).update(is_active=False)
        elif how == "left":
            lead.delete()
        else:
            KnownPerson.objects.filter(user=lead.user_id).update(disabled=NOW)
    assert not _works(clear)


@pytest.mark.parametrize("role", ["portal_web", "portal_ops", "portal_system"])
@pytest.mark.parametrize("later", [None, NOW + timedelta(days=1)])
def test_no_role_lets_a_revoked_token_live_again(actor: Actor, role: str, later: datetime | None) -> None:
    token, _ = _made(actor)
    with tenant_tx(actor.tenant_id):
        token_revoke(actor=actor, token_id=token.id, now=NOW)
    with as_role(role), tenant_tx(actor.tenant_id), pytest.raises(DatabaseError, match="begins anew"):
        ApiToken.objects.filter(id=token.id).update(revoked=later)


@pytest.mark.parametrize(("table", "column"), ENDINGS.items())
def test_what_has_ended_never_begins_anew(table: str, column: str) -> None:
    """Each secret and right has the trigger; a link that was used, or a stand-in that ended, as well."""
    with as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger"
            " WHERE tgname = 'ends_once' AND tgrelid = %s::regclass",
            [table],
        )
        (found,) = cursor.fetchall()
    assert f"OF {column} ON" in found[0]
