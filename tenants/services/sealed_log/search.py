"""Reads the log for people: filtered, by page, with the names of actors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL

from tenants.models import AuditEntry, AuditSeal, GpuClass, Project, Tier, User
from tenants.rules.audit_words import Labels
from tenants.services.sealed_log.chain import ENTRIES

PAGE = 50
# The values of an entry about a person that name them.
NAMING = frozenset({"username", "user_name"})
VERIFIED = "audit.verified"
SYSTEM = "The portal"
SEALS_READ = 200
NAMED_IN = (
    "(detail ->> 'label')",
    *(f"(detail #>> '{{after,{name}}}')" for name in ("where", "for", "tenant")),
)
# From each kind to the next one in the index `audit_by_kind`.
_KINDS = """
WITH RECURSIVE kinds AS (
  (SELECT object_kind FROM tenants_auditentry
   WHERE {tenant} ORDER BY object_kind LIMIT 1)
  UNION ALL
  SELECT (SELECT e.object_kind FROM tenants_auditentry e
          WHERE e.{tenant} AND e.object_kind > kinds.object_kind
          ORDER BY e.object_kind LIMIT 1)
  FROM kinds WHERE kinds.object_kind IS NOT NULL)
SELECT object_kind FROM kinds WHERE object_kind IS NOT NULL ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class LogFilter:
    """A filter: the actor's sign-in name, the kind of the object, its id or a name in the entry,
    and times in [since, until). Empty: all. `own_id`: only acts of this account."""

    actor: str = ""
    kind: str = ""
    about: str = ""
    since: datetime | None = None
    until: datetime | None = None
    own_id: int | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries, the newest first, and the cursor of the next page; empty at the end."""

    entries: Sequence[AuditEntry]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class SealState:
    """The state of a log's chain: its last seal, and the number of unsealed entries."""

    number: int
    sealed: datetime | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Verified:
    """The last verification of all chains, and the number of faults."""

    at: datetime
    faults: int
    chains: int


def log_entries(tenant_id: UUID | None, wanted: LogFilter) -> QuerySet[AuditEntry]:
    """The matching entries of a tenant's log, or with None of the platform's."""
    rows = AuditEntry.objects.filter(tenant=tenant_id)
    if wanted.own_id is not None:
        rows = rows.filter(actor_id=wanted.own_id)
    if wanted.actor:
        people = User.objects.filter(username__iexact=wanted.actor)
        rows = rows.filter(actor_id__in=list(people.values_list("id", flat=True)))
    if wanted.kind:
        rows = rows.filter(object_kind=wanted.kind)
    if wanted.about:
        rows = rows.filter(_mentions(tenant_id, wanted.about))
    if wanted.since:
        rows = rows.filter(at__gte=wanted.since)
    if wanted.until:
        rows = rows.filter(at__lt=wanted.until)
    return rows.order_by("-at", "-id")


def log_page(rows: QuerySet[AuditEntry], after: str = "") -> LogPage:
    """The page after the cursor `after`; the first page for an empty or invalid cursor."""
    found = list(rows.filter(_after_cursor(after))[: PAGE + 1])
    shown = found[:PAGE]
    return LogPage(shown, _cursor(shown[-1]) if len(found) > PAGE else "")


def log_kinds(tenant_id: UUID | None) -> list[str]:
    """The kinds of objects in the log. One look into the index for each kind, whatever the size."""
    with connection.cursor() as cursor:
        of = "tenant_id IS NULL" if tenant_id is None else "tenant_id = %(tenant)s"
        cursor.execute(_KINDS.format(tenant=of), {"tenant": tenant_id})
        return [kind for (kind,) in cursor.fetchall()]


def log_names(entries: Iterable[AuditEntry]) -> Mapping[int, str]:
    """The sign-in names of actors and of affected people, by the id of the account."""
    wanted = {entry.actor_id for entry in entries if entry.actor_id is not None}
    wanted |= {
        int(entry.object_id)
        for entry in entries
        if entry.object_kind == "user" and entry.object_id.isdecimal()
    }
    return dict(User.objects.filter(id__in=wanted).values_list("id", "username"))


def log_people(entries: Iterable[AuditEntry]) -> Mapping[int, str]:
    """The names of actors as other pages show them, by the id of the account."""
    wanted = {entry.actor_id for entry in entries if entry.actor_id is not None}
    return {each.id: each.display_name for each in User.objects.filter(id__in=wanted)}


def log_labels(tenant_id: UUID | None = None) -> Labels:
    """The names of GPU classes and tiers, and of the projects of a tenant, as pages show them."""
    kinds = list(GpuClass.objects.values_list("slug", "label", "kind"))
    classes = {slug: label for slug, label, _ in kinds}
    cores = frozenset(label for _, label, kind in kinds if kind == GpuClass.Kind.HOST)
    tiers = dict(Tier.objects.values_list("slug", "name"))
    rows = Project.objects.filter(tenant_id=tenant_id).values_list("id", "slug", "name") if tenant_id else ()
    projects = {key: name for id_, slug, name in rows for key in (str(id_), slug)}
    return Labels(classes, tiers, projects, cores)


def log_detail(entry: AuditEntry, names: Mapping[int, str]) -> dict[str, Any]:
    """The entry's detail without the names of an erased account; `names` are of `log_names`.

    The sealed row keeps what it had, so the seal verifies; nobody reads it in clear here.
    """
    name = names.get(int(entry.object_id)) if entry.object_id.isdecimal() else None
    if entry.object_kind != "user" or name != f"erased-{entry.object_id}":
        return dict(entry.detail)
    return {key: _erased(key, value, name) for key, value in entry.detail.items()}


def _erased(key: str, value: object, name: str) -> object:
    if isinstance(value, dict):
        return {inner: _erased(inner, found, name) for inner, found in value.items()}
    return name if key in NAMING and value else value


def seal_state(tenant_id: UUID | None) -> SealState:
    """The state of the chain of a tenant's log, or of the platform's."""
    seals = AuditSeal.objects.filter(source=ENTRIES.name, tenant=tenant_id)
    last = seals.order_by("-number").first()
    # A seal of late rows ends lower than the one before it, so the newest seal is not enough.
    latest = seals.order_by("-number").values_list("through", flat=True)[:SEALS_READ]
    through = max(latest, default=0)
    waiting = AuditEntry.objects.filter(tenant=tenant_id, id__gt=through).count()
    if last is None:
        return SealState(0, None, waiting)
    return SealState(last.number, last.sealed, waiting)


def verified_last() -> Verified | None:
    """The result of the last `manage.py audit_verify`; None before the first. For operators."""
    found = AuditEntry.objects.filter(tenant=None, action=VERIFIED).order_by("-at", "-id").first()
    if found is None:
        return None
    after = found.detail.get("after", {})
    return Verified(found.at, int(after.get("faults", 0)), int(after.get("chains", 0)))


def _mentions(tenant_id: UUID | None, words: str) -> Q:
    """The entries that name it: as their object, or in one of the places of `NAMED_IN`."""
    if tenant_id is None:
        # Operators read past row-level security, so the index of each place is used.
        places = " OR ".join(f"upper({each}) = upper(%s)" for each in ("object_id", *NAMED_IN))
        values = [words] * (1 + len(NAMED_IN))
    else:
        places, values = (
            "tenants_auditentry.id = ANY (ARRAY(SELECT portal_audit_named(%s)))",
            [words],
        )
    named = Q(RawSQL(f"({places})", values, BooleanField()))  # noqa: S611 (our constants)
    # By the present name, so that the name of an erased account finds nothing.
    people = User.objects.filter(username__iexact=words).values_list("id", flat=True)
    found = {
        "user": [str(each) for each in people],
        "tier": list(Tier.objects.filter(name__iexact=words).values_list("slug", flat=True)),
        "gpu_class": list(GpuClass.objects.filter(label__iexact=words).values_list("slug", flat=True)),
    }
    for kind, ids in found.items():
        named |= Q(object_kind=kind, object_id__in=ids) if ids else Q()
    return named


def _cursor(entry: AuditEntry) -> str:
    return f"{entry.at.isoformat()}_{entry.id}"


def _after_cursor(after: str) -> Q:
    moment, _, number = after.partition("_")
    try:
        at, last = datetime.fromisoformat(moment), int(number[:18])
    except ValueError:
        return Q()
    if at.tzinfo is None:
        return Q()
    # The first condition is a bound for the index.
    return Q(at__lte=at) & (Q(at__lt=at) | Q(at=at, id__lt=last))
