"""The wall as PostgreSQL has it: rules over all tables, each with a control that breaks it."""

from collections.abc import Iterator

import psycopg
import pytest
from django.apps import apps
from django.db import DatabaseError, models, transaction

from tenants.models import Project, Quota, Tenant
from tenants.platform.wall import operator_tx, protect, tenant_tx
from tests.builders import a_gpu_class, a_project, a_tenant
from tests.roles import as_system

TENANT_TABLES = """
SELECT c.oid, c.relname, c.relrowsecurity, c.relforcerowsecurity
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
WHERE c.relkind IN ('r', 'p') AND (
  c.relname IN ('tenants_tenant', 'tenants_user') OR EXISTS (
    SELECT FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
"""

OPEN_TABLES = f"""
SELECT t.relname FROM ({TENANT_TABLES}) t
WHERE NOT t.relrowsecurity OR NOT t.relforcerowsecurity OR NOT EXISTS (
  SELECT FROM pg_policy p WHERE p.polrelid = t.oid AND p.polpermissive AND p.polcmd = '*'
    AND p.polqual IS NOT NULL AND p.polwithcheck IS NOT NULL)
"""  # noqa: S608 (constants only, also below)

LAX_POLICIES = """
SELECT p.polrelid::regclass::text FROM pg_policy p
WHERE p.polpermissive AND (
  coalesce(pg_get_expr(p.polqual, p.polrelid), '') NOT LIKE '%portal_tenant()%'
  OR coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '') NOT LIKE '%portal_tenant()%')
"""

LEAVING_KEYS = f"""
WITH walled AS ({TENANT_TABLES})
SELECT k.conname FROM pg_constraint k
JOIN walled a ON a.oid = k.conrelid
JOIN walled b ON b.oid = k.confrelid AND b.relname NOT IN ('tenants_tenant', 'tenants_user')
WHERE k.contype = 'f' AND NOT EXISTS (
  SELECT FROM unnest(k.conkey, k.confkey) AS pair (here, there)
  JOIN pg_attribute x ON x.attrelid = k.conrelid AND x.attnum = here AND x.attname = 'tenant_id'
  JOIN pg_attribute y ON y.attrelid = k.confrelid AND y.attnum = there AND y.attname = 'tenant_id')
"""  # noqa: S608

OWNERS_VIEWS = """
SELECT c.relname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
WHERE c.relkind = 'v'
  AND NOT coalesce(c.reloptions, '{}') && ARRAY['security_invoker=true', 'security_invoker=on']
"""

# Unless pg_temp is said to be last, it is first: a temporary table would stand in for ours.
LOOSE_DEFINERS = """
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.prosecdef AND n.nspname = 'public' AND NOT EXISTS (
  SELECT FROM unnest(p.proconfig) AS setting WHERE setting LIKE 'search_path=%, pg_temp')
"""

ANYBODYS_DEFINERS = """
SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.prosecdef AND n.nspname = 'public' AND p.prorettype <> 'trigger'::regtype
  AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS entry
              WHERE entry.grantee = 0 AND entry.privilege_type = 'EXECUTE')
"""

WEBS_POWERS = """
SELECT 'attribute of the role' FROM pg_roles WHERE rolname = 'portal_web'
  AND (rolbypassrls OR rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication)
UNION ALL SELECT 'owns ' || oid::regclass FROM pg_class
  WHERE relowner = 'portal_web'::regrole
UNION ALL SELECT 'owns function ' || proname FROM pg_proc WHERE proowner = 'portal_web'::regrole
UNION ALL SELECT 'truncates ' || c.oid::regclass FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
  WHERE c.relkind = 'r' AND has_table_privilege('portal_web', c.oid, 'TRUNCATE')
UNION ALL SELECT 'creates in schema public'
  WHERE has_schema_privilege('portal_web', 'public', 'CREATE')
"""

SHARED_TABLES = f"""
SELECT c.relname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'
WHERE c.relkind IN ('r', 'p', 'v', 'm')
  AND has_any_column_privilege('portal_web', c.oid, 'SELECT')
  AND c.relname NOT IN (SELECT relname FROM ({TENANT_TABLES}) walled)
ORDER BY 1
"""  # noqa: S608

UNCONSTRAINED = """
CREATE TABLE tenants_loose (
  id uuid PRIMARY KEY, tenant_id uuid NOT NULL, UNIQUE (tenant_id, id))
"""


@pytest.fixture
def owner(owner_dsn: str) -> Iterator[psycopg.Connection]:
    """The owner in a transaction that is rolled back: what a test builds wrongly goes away."""
    with psycopg.connect(owner_dsn) as connected:
        yield connected
        connected.rollback()


def _names(owner: psycopg.Connection, rule: str) -> set[str]:
    return {row[0] for row in owner.execute(rule).fetchall()}


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(OPEN_TABLES, id="every tenant table has forced row security, both ways"),
        pytest.param(LAX_POLICIES, id="no policy lets in more than the tenant said"),
        pytest.param(LEAVING_KEYS, id="no foreign key leaves the tenant"),
        pytest.param(OWNERS_VIEWS, id="no view looks with its owner's eyes"),
        pytest.param(LOOSE_DEFINERS, id="every SECURITY DEFINER function pins its search_path"),
        pytest.param(ANYBODYS_DEFINERS, id="no SECURITY DEFINER function is for everybody"),
        pytest.param(WEBS_POWERS, id="the web owns nothing and passes no wall"),
    ],
)
def test_the_database_breaks_no_rule_of_the_wall(owner: psycopg.Connection, rule: str) -> None:
    assert _names(owner, rule) == set()


@pytest.mark.parametrize(
    ("rule", "damage", "found"),
    [
        pytest.param(OPEN_TABLES, UNCONSTRAINED, "tenants_loose", id="a table without row security"),
        pytest.param(
            OPEN_TABLES,
            f"{UNCONSTRAINED}; {protect('tenants_loose')};"
            " ALTER TABLE tenants_loose NO FORCE ROW LEVEL SECURITY",
            "tenants_loose",
            id="row security that the owner passes",
        ),
        pytest.param(
            OPEN_TABLES,
            f"{UNCONSTRAINED}; ALTER TABLE tenants_loose ENABLE ROW LEVEL SECURITY;"
            "ALTER TABLE tenants_loose FORCE ROW LEVEL SECURITY;"
            "CREATE POLICY wall ON tenants_loose USING (tenant_id = portal_tenant())",
            "tenants_loose",
            id="a policy that checks only what is read",
        ),
        pytest.param(
            LAX_POLICIES,
            "CREATE POLICY hole ON tenants_project USING (true) WITH CHECK (true)",
            "tenants_project",
            id="a second policy that lets everything through",
        ),
        pytest.param(
            LEAVING_KEYS,
            f"{UNCONSTRAINED}; ALTER TABLE tenants_loose ADD COLUMN project_id uuid;"
            "ALTER TABLE tenants_project ADD CONSTRAINT plain_id UNIQUE (id);"
            "ALTER TABLE tenants_loose ADD CONSTRAINT leaving FOREIGN KEY (project_id)"
            " REFERENCES tenants_project (id)",
            "leaving",
            id="a plain foreign key to another tenant table",
        ),
        pytest.param(
            OWNERS_VIEWS,
            "CREATE VIEW everything AS SELECT * FROM tenants_project",
            "everything",
            id="a view with its owner's rights",
        ),
        pytest.param(
            LOOSE_DEFINERS,
            "CREATE FUNCTION loose() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
            "loose",
            id="a definer function that finds tables where the caller says",
        ),
        pytest.param(
            LOOSE_DEFINERS,
            "CREATE FUNCTION loose() RETURNS int LANGUAGE sql SECURITY DEFINER"
            " SET search_path = pg_catalog, public AS 'SELECT 1'",
            "loose",
            id="a definer function that takes temporary tables for ours",
        ),
        pytest.param(
            ANYBODYS_DEFINERS,
            "CREATE FUNCTION loose() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
            "loose",
            id="a definer function that nobody took from PUBLIC",
        ),
        pytest.param(
            WEBS_POWERS,
            "GRANT TRUNCATE ON tenants_project TO portal_web",
            "truncates tenants_project",
            id="a table that the web may empty",
        ),
    ],
)
def test_each_rule_finds_what_breaks_it(
    owner: psycopg.Connection, rule: str, damage: str, found: str
) -> None:
    for statement in damage.split(";"):
        if statement.strip():
            owner.execute(statement)
    assert found in _names(owner, rule)


def test_only_named_tables_are_shared_by_all_tenants(owner: psycopg.Connection) -> None:
    """What the web reads without a wall holds no tenant's data: adding a name here says so."""
    assert _names(owner, SHARED_TABLES) <= {
        "django_migrations",
        "django_content_type",
        "auth_group",
        "auth_permission",
        "auth_group_permissions",
        "tenants_gpuclass",
        "tenants_tier",
        "billing_pricebook",
        "billing_price",
        "allocation_gpumodel",
        "allocation_demandhour",
        "allocation_demandforecast",
        "allocation_migplacement",
        "allocation_policyversion",
        "allocation_rack",
        "allocation_zone",
        "allocation_tierenergy",
        "allocation_transition",
        "allocation_node",
        "allocation_engineagent",
        "allocation_gpu",
        "allocation_maintenance",
        "allocation_eventcounter",
        "allocation_workspeed",
        "allocation_backup",
        "allocation_portalmode",
        "allocation_headroomhour",
        "allocation_nodenotebooks",
        "allocation_nodecache",
        # Behind a policy of its own: it names its tenants in an array. Dismissals name nobody's.
        "tenants_announcement",
        "tenants_announcementdismissal",
    }


def test_every_reference_between_tenants_rows_has_a_key_in_the_database(
    owner: psycopg.Connection,
) -> None:
    """Django's own keys are plain, so models leave them out: each needs one with tenant_id."""
    keys = owner.execute(
        "SELECT conrelid::regclass::text, array_agg(a.attname::text) FROM pg_constraint k"
        " JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)"
        " WHERE k.contype = 'f' GROUP BY k.oid, k.conrelid"
    ).fetchall()
    kept = {(table, column) for table, columns in keys for column in columns if "tenant_id" in columns}
    wanted = {
        (model._meta.db_table, field.column)
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, models.ForeignKey)
        and _has_tenant(model)
        and _has_tenant(field.remote_field.model)
        # A trigger guards references to rows that may belong to everybody.
        and not field.remote_field.model._meta.get_field("tenant").null
    }
    assert wanted - kept == set()


def _has_tenant(model: type[models.Model]) -> bool:
    return any(field.attname == "tenant_id" for field in model._meta.concrete_fields)


@pytest.mark.django_db
def test_a_forgotten_tenant_is_an_error_and_no_empty_page() -> None:
    a_project()
    with pytest.raises(DatabaseError, match="tenant context missing"):
        list(Project.objects.all())


@pytest.mark.django_db
def test_inside_the_wall_only_the_own_rows_are_there() -> None:
    mine, foreign = a_project(), a_project()
    with tenant_tx(mine.tenant_id):
        assert list(Project.objects.all()) == [mine]
        assert list(Tenant.objects.all()) == [mine.tenant]
        assert not Project.objects.filter(id=foreign.id).update(name="Mine now")


@pytest.mark.django_db
def test_nothing_can_be_written_for_another_tenant() -> None:
    mine, foreign = a_tenant(), a_tenant()
    refused = pytest.raises(DatabaseError, match="row-level security")
    with tenant_tx(mine.id), refused, transaction.atomic():
        Project.objects.create(tenant=foreign, slug="planted", name="Planted")


@pytest.mark.django_db
def test_a_row_cant_point_at_another_tenants_project() -> None:
    """Row security does not look at foreign keys; the keys themselves must."""
    mine, foreign, gpu_class = a_tenant(), a_project(), a_gpu_class()
    refused = pytest.raises(DatabaseError, match="project_id_in_tenant")
    with tenant_tx(mine.id), refused, transaction.atomic():
        Quota.objects.create(tenant=mine, project_id=foreign.id, gpu_class=gpu_class)


@pytest.mark.django_db
def test_an_inner_tenant_ends_with_its_block() -> None:
    outer, inner = a_project(), a_project()
    with tenant_tx(outer.tenant_id):
        with tenant_tx(inner.tenant_id):
            assert list(Project.objects.all()) == [inner]
        assert list(Project.objects.all()) == [outer]


@pytest.mark.django_db
def test_an_operator_sees_all_and_stops_being_one() -> None:
    one, two = a_project(), a_project()
    with operator_tx():
        assert set(Project.objects.filter(id__in=[one.id, two.id])) == {one, two}
    with pytest.raises(DatabaseError, match="tenant context missing"), transaction.atomic():
        list(Project.objects.all())
    with as_system():
        assert Project.objects.count() == 2
