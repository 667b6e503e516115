"""The demo site's tenants, people, quotas, budgets, passwords and tokens."""

import json
import os
import secrets
from collections.abc import Iterable
from dataclasses import asdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db import transaction

from billing.models import Budget, Campaign
from billing.rules import BudgetOwner, BudgetTerms, Period, month_of
from billing.services import Rung, budget_put, budget_set, campaign_create, ladder_set
from tenants.access import Actor, actor_by_id
from tenants.models import Membership, Project, Quota, Role, Tenant, User
from tenants.rules.operator_roles import READ_ONLY, SITE
from tenants.services import (
    NewAccount,
    Share,
    account_create,
    invitation_accept,
    invitation_create,
    operator_create,
    project_create,
    quota_set,
    tenant_create,
    tenant_quota_set,
    token_create,
    token_verify,
)
from tenants.services.sign_in.sessions import temporary_session

UNITS_PER_GPU = 56_000
TOKEN_DAYS = 365

TENANTS = {"helix": "Helix Institute", "northlab": "North Lab"}
ADMINS = {"helix": "ada", "northlab": "sigrid"}
# (tenant, project) -> (name, euro per month).
PROJECTS = {
    ("helix", "protein-folding"): ("Protein folding", "4000"),
    ("helix", "cryo-em"): ("Cryo-EM", "1500"),
    ("helix", "language-models"): ("Language models", "5000"),
    ("northlab", "climate"): ("Climate", "2500"),
}
# (tenant, project or None, campaign, person) -> (euro per month, whether it is hard).
LIMITS: dict[tuple[str, str | None, str, str], tuple[str, bool]] = {
    ("helix", None, "", ""): ("10000", True),
    ("helix", "protein-folding", "Complex prediction", ""): ("1800", True),
    ("helix", "language-models", "Ablation study", ""): ("1200", False),
    ("helix", "protein-folding", "", "mara"): ("2500", True),
    ("northlab", None, "", ""): ("3000", True),
}
ALERTS = (Rung("committed", 80, "notify"), Rung("forecast", 100, "notify"))
# Each of these budgets notifies at half, too, and takes no new bookings close to its end.
LADDER = (Rung("spent", 50, "notify"), *ALERTS, Rung("committed", 95, "no_bookings"))
# Sign-in name -> (name, memberships as (tenant, project or None, role)).
PEOPLE: dict[str, tuple[str, list[tuple[str, str | None, Role]]]] = {
    "mara": (
        "Mara Lind",
        [
            ("helix", "protein-folding", Role.RESEARCHER),
            ("helix", "language-models", Role.RESEARCHER),
        ],
    ),
    "jonas": ("Jonas Weil", [("helix", "protein-folding", Role.LEAD)]),
    "ines": ("Ines Okoro", [("helix", "cryo-em", Role.LEAD)]),
    "tomas": (
        "Tomas Vrba",
        [("helix", "language-models", Role.LEAD), ("helix", "cryo-em", Role.RESEARCHER)],
    ),
    "lea": ("Lea Brandt", [("helix", "protein-folding", Role.VIEWER)]),
    "ada": ("Ada Krol", [("helix", None, Role.TENANT_ADMIN)]),
    # A token belongs to a tenant, so operators need a membership.
    "olaf": ("Olaf Brekke", [("helix", "cryo-em", Role.VIEWER)]),
    "svea": ("Svea Nord", [("helix", "cryo-em", Role.VIEWER)]),
    "rita": ("Rita Falk", [("helix", "cryo-em", Role.VIEWER)]),
    "nils": ("Nils Aune", [("northlab", "climate", Role.RESEARCHER)]),
    "freya": ("Freya Dahl", [("northlab", "climate", Role.LEAD)]),
    "sigrid": ("Sigrid Holm", [("northlab", None, Role.TENANT_ADMIN)]),
}
OPERATOR = "olaf"
# Sign-in name of an operator -> role.
OPERATORS = {OPERATOR: SITE, "svea": SITE, "rita": READ_ONLY}
# Role in the demo -> sign-in name, and the tenant of the token.
DEMO_ROLES = {
    "researcher": ("mara", "helix"),
    "lead": ("jonas", "helix"),
    "tenant_admin": ("ada", "helix"),
    "viewer": ("lea", "helix"),
    "operator": ("olaf", "helix"),
    "second_operator": ("svea", "helix"),
    "reading_operator": ("rita", "helix"),
    "other_tenant_researcher": ("nils", "northlab"),
}
# Class -> whole GPUs as (guaranteed, limit), of a tenant (None) or a project. All projects of a
# tenant share what it has not split; standard and assured need that, because they never borrow.
QUOTAS: dict[tuple[str, str | None], dict[str, tuple[int, int | None]]] = {
    ("helix", None): {
        "h100": (6, 8),
        "a100": (6, 8),
        "a100-40": (6, 8),
        "l40s": (3, 4),
        "cpu": (24, 32),
    },
    ("helix", "protein-folding"): {"h100": (2, 6), "a100": (0, 6), "l40s": (1, None)},
    ("helix", "cryo-em"): {"h100": (0, 2), "a100": (2, 4), "a100-40": (4, 8)},
    ("helix", "language-models"): {"h100": (1, 8), "a100": (2, 8), "l40s": (1, 3)},
    ("northlab", None): {
        "h100": (2, 4),
        "a100": (2, 4),
        "a100-40": (2, 4),
        "l40s": (1, 2),
        "cpu": (8, 16),
    },
    ("northlab", "climate"): {"h100": (2, 4), "a100": (2, 4)},
}


@transaction.atomic
def people_seed(today: date, now: datetime) -> None:
    """Creates missing people, tenants, projects, quotas, and the budgets around `today`.

    Each step is done by a person with the right to do it: the operator creates accounts and
    tenants, admins create projects and invite people, who accept.
    """
    for username in sorted(PEOPLE, key=lambda name: name != OPERATOR):
        _account_seed(username, now)
    _tenants_and_projects_seed(now)
    for username in PEOPLE:
        _memberships_seed(username, now)
    _quotas_and_budgets_seed(today, now)


def _tenants_and_projects_seed(now: datetime) -> None:
    for slug, name in TENANTS.items():
        if not Tenant.objects.filter(slug=slug).exists():
            operator = _person(OPERATOR)
            tenant_create(operator=operator, slug=slug, name=name, admin=ADMINS[slug], now=now)
    for (tenant, slug), (name, _) in PROJECTS.items():
        if not Project.objects.filter(tenant__slug=tenant, slug=slug).exists():
            project_create(actor=_admin(tenant), slug=slug, name=name, now=now)


def _quotas_and_budgets_seed(today: date, now: datetime) -> None:
    for (tenant, project), rows in QUOTAS.items():
        for gpu_class, (guaranteed, limit) in rows.items():
            share = _share(guaranteed, limit)
            _quota_seed(_project(tenant, project), tenant, gpu_class, share, now)
    for (tenant, slug), (_, amount) in PROJECTS.items():
        for period in _months(today):
            _budget_seed(Project.objects.get(tenant__slug=tenant, slug=slug), period, amount, now)
    for names, (amount, is_hard) in LIMITS.items():
        owner = _limit_owner(*names, now)
        for period in _months(today):
            terms = BudgetTerms(period, Decimal(amount), is_hard=is_hard)
            if not Budget.objects.filter(**asdict(owner), starts=period.starts).exists():
                budget = budget_put(actor_id=None, owner=owner, terms=terms, now=now)
                ladder_set(actor_id=None, budget=budget, rungs=LADDER, now=now)


def _limit_owner(tenant: str, slug: str | None, campaign: str, person: str, now: datetime) -> BudgetOwner:
    """The owner of a limit; creates its campaign."""
    project = _project(tenant, slug)
    if project is None:
        return BudgetOwner(Tenant.objects.get(slug=tenant).id)
    if person:
        return BudgetOwner(project.tenant_id, project.id, person_id=_person(person).pk)
    found = Campaign.objects.filter(project=project, name=campaign).first()
    if found is None:
        found = campaign_create(actor=_admin(tenant), project=project, name=campaign, now=now)
    return BudgetOwner(project.tenant_id, project.id, campaign_id=found.id)


def credentials_write(path: Path, url: str, now: datetime) -> None:
    """Writes passwords and tokens to `path`, readable by its owner only.

    Passwords and tokens in the file that still work are kept.
    """
    stored = _stored(path)
    document = {
        "url": url,
        "tokens": {
            part: _token(username, tenant, stored.get("tokens", {}).get(part, ""), now)
            for part, (username, tenant) in DEMO_ROLES.items()
        },
        "passwords": {
            part: _password(username, stored.get("passwords", {}).get(part, {}))
            for part, (username, _) in DEMO_ROLES.items()
        },
    }
    if document != stored:
        _write(path, document)


def _account_seed(username: str, now: datetime) -> None:
    if User.objects.filter(username=username).exists():
        return
    name, _ = PEOPLE[username]
    # Letters of all kinds are, once in some thousand, too similar to an address for the validators.
    account = NewAccount(username, name, f"{username}@example.org", secrets.token_hex(10))
    if username in OPERATORS:
        operator_create(account=account, now=now, role=OPERATORS[username])
    else:
        account_create(operator=_person(OPERATOR), account=account, now=now)


def _memberships_seed(username: str, now: datetime) -> None:
    user, (_, memberships) = _person(username), PEOPLE[username]
    for tenant, project, role in memberships:
        where = _project(tenant, project)
        if Membership.objects.filter(user=user, tenant__slug=tenant, project=where).exists():
            continue
        offer = invitation_create(actor=_admin(tenant), to=username, role=role, project=project, now=now)
        with temporary_session(user, now=now):
            invitation_accept(user=user, invitation_id=offer.id, now=now)


def _person(username: str) -> User:
    return User.objects.get(username=username)


def _admin(tenant: str) -> Actor:
    return actor_by_id(_person(ADMINS[tenant]).pk, tenant)


def _quota_seed(project: Project | None, tenant: str, gpu_class: str, share: Share, now: datetime) -> None:
    """Sets a tenant's quota as the operator, or a project's as the tenant's admin."""
    where = Tenant.objects.get(slug=tenant)
    if Quota.objects.filter(tenant=where, project=project, gpu_class=gpu_class).exists():
        return
    if project is None:
        operator = _person(OPERATOR)
        tenant_quota_set(operator=operator, tenant=where, gpu_class=gpu_class, share=share, now=now)
    else:
        quota_set(actor=_admin(tenant), project=project, gpu_class=gpu_class, share=share, now=now)


def _share(guaranteed: int, limit: int | None) -> Share:
    more = None if limit is None else (limit - guaranteed) * UNITS_PER_GPU
    return Share(guaranteed * UNITS_PER_GPU, more)


def _budget_seed(project: Project, period: Period, amount: str, now: datetime) -> None:
    touching = Budget.objects.filter(project=project, starts__lt=period.ends, ends__gt=period.starts)
    if not touching.exists():
        budget = budget_set(actor_id=None, project=project, period=period, amount=Decimal(amount), now=now)
        ladder_set(actor_id=None, budget=budget, rungs=ALERTS, now=now)


def _months(today: date) -> Iterable[Period]:
    """The month of eight days ago, the current one and the next."""
    current = month_of(today)
    return sorted(
        {month_of(today - timedelta(days=8)), current, month_of(current.ends)},
        key=lambda period: period.starts,
    )


def _project(tenant: str, slug: str | None) -> Project | None:
    return None if slug is None else Project.objects.get(tenant__slug=tenant, slug=slug)


def _token(username: str, tenant: str, stored: str, now: datetime) -> str:
    user = User.objects.get(username=username)
    holder = token_verify(stored, now=now) if stored else None
    if holder is not None and (holder.user_id, holder.tenant_slug) == (user.pk, tenant):
        return stored
    actor = actor_by_id(user.pk, tenant)
    return token_create(actor=actor, name="Demo", days=TOKEN_DAYS, now=now)[1]


def _password(username: str, stored: dict[str, str]) -> dict[str, str]:
    user = User.objects.get(username=username)
    password = stored.get("password", "")
    if not password or not user.check_password(password):
        password = secrets.token_hex(10)
        user.set_password(password)
        user.save()
    return {"username": username, "password": password}


def _stored(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    # Created with its mode, so that others can never open it.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    new.replace(path)
