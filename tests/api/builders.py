"""A small site to call the API on: two tenants, every role, prices, money, and eight GPUs."""

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from allocation.models import Gpu, GpuModel, MigPlacement, Node, PolicyVersion, Rack, SolverState
from billing.models import Budget
from billing.rules import Period, month_after
from billing.services import budget_set
from tenants.access import Actor
from tenants.audit import audit_entry, audit_write
from tenants.models import (
    ApiToken,
    GpuClass,
    Membership,
    Project,
    Quota,
    Role,
    Scope,
    Tenant,
    User,
)
from tenants.platform.deferred import DeferredResponse
from tenants.platform.wall import tenant_tx
from tenants.services import token_create
from tenants.services.credentials.tokens import SHOWN_LENGTH, token_digest, token_text
from tests.builders import UNITS_PER_GPU, a_gpu_class, a_tier, actor_now, some_users
from tests.builders_allocation import NOW
from tests.prices import price_book_publish
from tests.roles import as_owner, as_system

# profile, id, size, compute, limit, starts: as NVML lists them for an H100 80 GB.
H100_PLACEMENTS = (
    ("1g.10gb", 19, 1, 1, 7, range(7)),
    ("2g.20gb", 14, 2, 2, 3, (0, 2, 4)),
    ("3g.40gb", 9, 4, 3, 2, (0, 4)),
    ("7g.80gb", 0, 8, 7, 1, (0,)),
)

WHO = {
    "researcher": "mara",
    "lead": "jonas",
    "viewer": "vera",
    "admin": "ada",
    "operator": "otto",
    "outsider": "stefan",
}


@dataclass(frozen=True)
class Api:
    """A client with a token; `post` and friends take and give JSON."""

    token: str | None
    client: Client = field(default_factory=Client)

    def get(self, path: str, **query: str) -> HttpResponse:
        """GET /api/v1/<path>."""
        return self.send("GET", path, query=query)

    def post(self, path: str, body: object = None, **headers: str) -> HttpResponse:
        """POST /api/v1/<path>; `idempotency_key="…"` is the header Idempotency-Key."""
        return self.send("POST", path, body, headers=headers)

    def put(self, path: str, body: object = None, **headers: str) -> HttpResponse:
        """PUT /api/v1/<path>."""
        return self.send("PUT", path, body, headers=headers)

    def delete(self, path: str) -> HttpResponse:
        """DELETE /api/v1/<path>."""
        return self.send("DELETE", path)

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        """Any request; `bytes` are sent as they are."""
        sent = dict(headers or {})
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        content_type = sent.pop("content_type", "application/json")
        raw = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        response = self.client.generic(
            method,
            f"/api/v1/{path}",
            raw,
            content_type=content_type,
            headers={name.replace("_", "-"): value for name, value in sent.items()},
            query_params=dict(query or {}),
        )
        return cast(HttpResponse, response)


@dataclass(frozen=True)
class Site:
    """What tests start from."""

    tenant: Tenant
    project: Project
    hidden: Project
    other_project: Project
    budget: Budget
    researcher: Api
    lead: Api
    viewer: Api
    admin: Api
    operator: Api
    outsider: Api
    people: Mapping[str, User]

    def actor(self, who: str = "researcher") -> Actor:
        """That person in their tenant, as services see them."""
        tenant = self.other_project.tenant if who == "outsider" else self.tenant
        return actor_now(self.people[who].id, tenant.slug)


def a_site(*, budget: str = "1000") -> Site:
    """Helix with a project of each role, North Lab with an outsider, one node of eight H100.

    In one change of the role, because hundreds of tests start from it.
    """
    with as_system():
        return _a_site(budget)


def _a_site(budget: str) -> Site:
    tenant, north = Tenant.objects.bulk_create(
        Tenant(slug=slug, name=name) for slug, name in (("helix", "Helix"), ("northlab", "North Lab"))
    )
    project, hidden, other = Project.objects.bulk_create(
        Project(tenant=owner, slug=slug, name=slug.title())
        for owner, slug in ((tenant, "folding"), (tenant, "hidden"), (north, "climate"))
    )
    people = dict(zip(WHO, some_users(*WHO.values(), operator="otto"), strict=True))
    roles = (
        (project, Role.RESEARCHER, "researcher"),
        (project, Role.LEAD, "lead"),
        (project, Role.VIEWER, "viewer"),
        (None, Role.TENANT_ADMIN, "admin"),
        (None, Role.TENANT_ADMIN, "operator"),
        (other, Role.LEAD, "outsider"),
    )
    Membership.objects.bulk_create(
        Membership(tenant=where.tenant if where else tenant, project=where, user=people[who], role=role)
        for where, role, who in roles
    )
    h100 = some_hardware()
    a_tier("standard")
    a_tier("spot", priority=10, pausable=True)
    Quota.objects.bulk_create(
        Quota(
            tenant=owner,
            project=where,
            gpu_class=h100,
            guaranteed_units=guaranteed * UNITS_PER_GPU,
            borrow_limit_units=guaranteed * UNITS_PER_GPU,
        )
        for owner, where, guaranteed in ((tenant, None, 4), (north, None, 4), (tenant, project, 2))
    )
    tokens = _tokens({who: (north if who == "outsider" else tenant, user) for who, user in people.items()})
    return Site(
        tenant=tenant,
        project=project,
        hidden=hidden,
        other_project=other,
        budget=some_money(project, budget),
        people=people,
        **{who: Api(token) for who, token in tokens.items()},
    )


def _tokens(holders: Mapping[str, tuple[Tenant, User]]) -> dict[str, str]:
    """The text of a token of each, stored as `token_create` does, without its checks."""
    now = timezone.now()
    texts = {who: token_text() for who in holders}
    scopes, expires = list(Scope.values), now + timedelta(days=90)
    with as_owner():
        made = ApiToken.objects.bulk_create(
            ApiToken(
                tenant=tenant,
                user=user,
                name="test",
                digest=token_digest(texts[who]),
                prefix=texts[who][:SHOWN_LENGTH],
                created=now,
                expires=expires,
                scopes=scopes,
            )
            for who, (tenant, user) in holders.items()
        )
    audit_write(
        audit_entry(
            tenant_id=token.tenant_id,
            actor_id=token.user_id,
            action="token.created",
            target=("token", token.id),
            now=now,
            detail={"expires": expires.isoformat(), "scopes": scopes},
        )
        for token in made
    )
    return texts


def a_token(actor: Actor) -> str:
    """A token's clear text; made as the owner, because no worker makes one."""
    with as_owner(), tenant_tx(actor.tenant_id):
        return token_create(actor=actor, name="test", days=90, now=timezone.now())[1]


def some_hardware(gpus: int = 8) -> GpuClass:
    """One ready node of H100 with MIG, and the rows every cycle needs."""
    h100 = a_gpu_class("h100", label="H100 80 GB")
    with as_system():
        model = GpuModel.objects.create(
            slug="h100-80gb",
            product_name="NVIDIA H100 80GB HBM3",
            gpu_class=h100,
            memory_mb=81_559,
        )
        MigPlacement.objects.bulk_create(
            MigPlacement(
                model=model,
                profile=profile,
                profile_id=number,
                start=start,
                size=size,
                compute=compute,
                limit=limit,
            )
            for profile, number, size, compute, limit, starts in H100_PLACEMENTS
            for start in starts
        )
        rack = Rack.objects.create(name="a1")
        node = Node.objects.create(name="gpu-a1-01", rack=rack, state=Node.State.READY)
        Gpu.objects.bulk_create(
            Gpu(
                number=index,
                node=node,
                index=index,
                uuid=f"GPU-{index}",
                model=model,
                gpu_class=h100,
                domain=index // 4,
            )
            for index in range(gpus)
        )
        SolverState.objects.get_or_create(id=1)
        PolicyVersion.objects.get_or_create(
            number=1, defaults={"document": {}, "state": "live", "created": timezone.now()}
        )
    return h100


def some_money(project: Project, amount: str) -> Budget:
    """Prices for h100 in both tiers, and a budget of the builders' fixed times and the coming months.

    It begins with the month of `builders_allocation.NOW` and not with this one: bookings at that time, and
    bookings of the last days, have to be covered on the first day of a month, too.
    """
    now = timezone.now() - timedelta(minutes=1)
    until = month_after(month_after(month_after(now.date())))
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=now,
            prices={("h100", "standard"): Decimal("4.80"), ("h100", "spot"): Decimal("1.68")},
            now=now,
        )
        return budget_set(
            actor_id=None,
            project=project,
            period=Period(NOW.date().replace(day=1), until),
            amount=Decimal(amount),
            now=now,
        )


def row_counts() -> dict[str, int]:
    """How many rows every table has."""
    with as_system(), connection.cursor() as cursor:
        counts = (
            f"SELECT '{table}', count(*) FROM {connection.ops.quote_name(table)}"  # noqa: S608 (names come from the catalogue)
            for table in connection.introspection.table_names(cursor)
        )
        cursor.execute(" UNION ALL ".join(counts))
        return dict(cursor.fetchall())


def awaited(response: HttpResponse, *, applied: bool = True, is_due: bool = True) -> HttpResponse:
    """What the web answers to a request that waits, when its time is over or it is decided."""
    from portal.web.serving.waiting import Waiter, answers_of  # noqa: PLC0415 (needs settings)

    assert isinstance(response, DeferredResponse)
    waiter = Waiter(response.deferred, Future(), is_due=is_due, applied=applied)  # type: ignore[arg-type]
    [(_, answer)] = answers_of({waiter.tenant: [waiter]})
    assert isinstance(answer, HttpResponse)
    return answer


def said(response: HttpResponse) -> Any:  # noqa: ANN401 (whatever the JSON is)
    """The answer's JSON."""
    return json.loads(response.content)


def _json(body: object) -> bytes:
    return json.dumps(body).encode()
