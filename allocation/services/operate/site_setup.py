"""Sets up a site from `site.toml`. Existing entries are kept, and differences are reported."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db import transaction

from allocation.models import GpuModel, Node, PolicyVersion
from allocation.queries.fleet.catalogue import work_speeds
from allocation.rules.site.known_models import known_catalogue
from allocation.rules.site.site_file import Key, SiteFaults, SiteFile
from allocation.services.nodes.fleet import node_approve
from allocation.services.operate.catalogue import ModelTerms, class_set, model_set
from allocation.services.operate.site_defaults import (
    default_tiers_add,
    known_model_add,
    prices_proposed,
    speeds_fill,
)
from allocation.services.policy.activations import policy_publish
from allocation.services.record.workloads import speeds_set
from allocation.words.refusals import refusal_text
from billing.models import Budget, PriceBook
from billing.price_books import currency_latest, prices_of
from billing.queries import budget_figures
from billing.rules import Period, month_of
from billing.services import budget_set, peaks_kept, price_book_publish, slices_kept
from solver.model.policy import ANY_TIER
from tenants.access import Actor
from tenants.models import GpuClass, Membership, Project, Quota, Role, Tenant, Tier, User
from tenants.platform.errors import Refused
from tenants.queries import is_only_operator
from tenants.rules.operator_roles import Area
from tenants.services import (
    NewAccount,
    Share,
    TierTerms,
    account_create,
    operator_create,
    project_create,
    tenant_create,
    tenant_quota_set,
    tier_set,
    units_read,
)

TIER_DEFAULTS = {
    "pausable": False,
    "grace_seconds": 600,
    "protected_seconds": 0,
    "max_duration_seconds": 7 * 86_400,
    "advance_seconds": 28 * 86_400,
}
# Measured in docs/benchmarks.md ("Loans of tiers that are never paused").
FIRST_POLICY = {"borrow_windows": {ANY_TIER: 4 * 3_600}}
_FOREVER = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the file: made, there, or there with differences, which `what` describes."""

    kind: str
    what: str


@dataclass(slots=True)
class Outcome:
    """Result for the file. `passwords` by sign-in name are those of new accounts without a password
    file: they are shown once and not stored. `is_only_operator`: nobody else is the second person
    of what the file's operator changes."""

    changes: list[Change] = field(default_factory=list)
    passwords: dict[str, str] = field(default_factory=dict)
    is_only_operator: bool = False

    def note(self, what: str, *, is_new: bool, differences: Iterable[str] = ()) -> None:
        """Records an entry that was made or compared."""
        differing = "; ".join(differences)
        if is_new or not differing:
            self.changes.append(Change("made" if is_new else "there", what))
        else:
            self.changes.append(Change("differs", f"{what}: {differing}"))

    def count(self, kind: str) -> int:
        """Number of changes of this kind."""
        return sum(change.kind == kind for change in self.changes)


@transaction.atomic
def site_apply(*, site: SiteFile, now: datetime) -> Outcome:
    """Applies the whole file or nothing. Runs as the database's owner.

    Raises:
        SiteFaults: the first entry that is refused, with its line.
    """
    run = _Run(site, now)
    run.operator()
    run.classes_and_models()
    run.tiers()
    run.speeds()
    run.prices()
    tenants = _Tenants(run)
    for number, tenant in enumerate(site.values.get("tenant", ())):
        tenants.apply(("tenant", number), tenant)
    run.nodes()
    run.policy()
    return run.outcome


class _Run:
    """One pass over the file."""

    by: User

    def __init__(self, site: SiteFile, now: datetime) -> None:
        self.site = site
        self.values: Mapping[str, Any] = site.values
        self.now = now
        self.outcome = Outcome()

    @contextmanager
    def at(self, *key: str | int, params: Mapping[str, str] | None = None) -> Iterator[None]:
        """Turns a refusal inside into a fault at the key, or at the key of its field."""
        try:
            yield
        except Refused as refusal:
            param = (params or {}).get(refusal.param or "", refusal.param or "")
            raise self.fault((*key, param) if param else key, refusal.sentence) from refusal

    def compare(self, what: str, found: object, stated: Mapping[str, object]) -> None:
        """Records an entry that was made because `found` is None, or compared with it."""
        self.outcome.note(what, is_new=found is None, differences=_differences(found, stated))

    def fault(self, key: Key, sentence: str) -> SiteFaults:
        return SiteFaults([self.site.fault(key, sentence)])

    def operator(self) -> None:
        person = self.values["operator"]
        found = User.objects.filter(username=person["username"]).first()
        if found is not None and not found.is_staff:
            sentence = refusal_text("operator_taken", username=found.username)
            raise self.fault(("operator", "username"), sentence)
        with self.at("operator"):
            self.by = found or operator_create(account=self.account(("operator",), person), now=self.now)
        self.outcome.note(f"operator {self.by.username}", is_new=found is None)
        self.outcome.is_only_operator = is_only_operator(self.by.pk, Area.MONEY, self.now)

    def policy(self) -> None:
        """Publishes the first policy of a new site; one that operators have changed stays."""
        versions = PolicyVersion.objects.exclude(document={})
        is_new = not versions.exists()
        if is_new:
            policy_publish(document=FIRST_POLICY, now=self.now, created_by_id=self.by.pk)
        self.outcome.note("policy", is_new=is_new)

    def account(self, key: Key, person: Mapping[str, str]) -> NewAccount:
        """Returns the account of a person in the file; a password is made unless one is named."""
        if name := person.get("password_file"):
            try:
                password = Path(name).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError):
                sentence = refusal_text("file_unreadable", name=name)
                raise self.fault((*key, "password_file"), sentence) from None
        else:
            password = secrets.token_urlsafe(12)
            self.outcome.passwords[person["username"]] = password
        return NewAccount(person["username"], person["name"], person.get("email", ""), password)

    def classes_and_models(self) -> None:
        for number, row in enumerate(self.values.get("class", ())):
            found = GpuClass.objects.filter(slug=row["slug"]).first()
            with self.at("class", number):
                if found is None:
                    class_set(operator=self.by, now=self.now, **row)
            self.compare(f"class {row['slug']}", found, {"label": row["label"]})
        for number, slug in enumerate(self.values.get("models", ())):
            self._shipped_model(("models", number), slug)
        for number, row in enumerate(self.values.get("model", ())):
            self._own_model(("model", number), row)

    def _shipped_model(self, key: Key, slug: str) -> None:
        known = known_catalogue().models.get(slug)
        names = known.names if known else ()
        is_new = not GpuModel.objects.filter(product_name__in=names).exists()
        with self.at(*key, params={"slug": ""}):
            known_model_add(operator=self.by, slug=slug, now=self.now)
        self.outcome.note(f"model {slug}", is_new=is_new)

    def _own_model(self, key: Key, row: Mapping[str, Any]) -> None:
        terms = ModelTerms(row["product_name"], row["class"], row["memory_mb"], row.get("reset_seconds", 0))
        found = GpuModel.objects.filter(slug=row["slug"]).first()
        with self.at(*key, params={"gpu_class": "class", "switch_seconds": "reset_seconds"}):
            if not GpuClass.objects.filter(slug=terms.gpu_class).exists():
                class_set(operator=self.by, slug=terms.gpu_class, label=terms.gpu_class, now=self.now)
            if found is None:
                model_set(operator=self.by, slug=row["slug"], terms=terms, now=self.now)
        # Memory comes from the driver once there are GPUs.
        stated = {
            "product_name": terms.product_name,
            "gpu_class_id": terms.gpu_class,
            "switch_seconds": terms.switch_seconds,
        }
        self.compare(f"model {row['slug']}", found, stated)

    def tiers(self) -> None:
        if "tier" not in self.values:
            if not Tier.objects.exists():
                for tier in default_tiers_add(operator=self.by, now=self.now):
                    self.outcome.note(f"tier {tier.slug}", is_new=True)
            return
        for number, row in enumerate(self.values["tier"]):
            terms = {name: value for name, value in row.items() if name != "slug"}
            found = Tier.objects.filter(slug=row["slug"]).first()
            with self.at("tier", number):
                if found is None:
                    tier_set(
                        operator=self.by,
                        slug=row["slug"],
                        terms=TierTerms(**{**TIER_DEFAULTS, **terms}),
                        now=self.now,
                    )
            self.compare(f"tier {row['slug']}", found, terms)

    def speeds(self) -> None:
        stated = work_speeds()
        for workload, given in self.values.get("speeds", {}).items():
            wanted = {slug: round(speed * 1000) for slug, speed in given.items()}
            known = stated.get(workload, {})
            missing = {slug: speed for slug, speed in wanted.items() if slug not in known}
            typical = known_catalogue().speeds(wanted).get(workload, {})
            # Speeds in the file replace the typical ones that came with its models.
            replaced = {
                slug: speed for slug, speed in wanted.items() if known.get(slug) == typical.get(slug) != speed
            }
            if missing or replaced:
                with self.at("speeds", workload):
                    speeds_set(
                        operator=self.by,
                        workload=workload,
                        speeds={**known, **missing, **replaced},
                        now=self.now,
                    )
            differences = [
                f"{slug} is {known[slug] / 1000:g} here, {speed / 1000:g} in the file"
                for slug, speed in wanted.items()
                if slug in known and slug not in replaced and known[slug] != speed
            ]
            is_new = bool(missing or replaced)
            self.outcome.note(f"speeds of {workload}", is_new=is_new, differences=differences)
        speeds_fill(operator=self.by, now=self.now)

    def prices(self) -> None:
        given = {
            (gpu_class, tier): Decimal(price)
            for gpu_class, of_tiers in self.values.get("prices", {}).items()
            for tier, price in of_tiers.items()
        }
        classes = list(GpuClass.objects.values_list("slug", flat=True))
        tiers = list(Tier.objects.values_list("slug", flat=True))
        for gpu_class, tier in given:
            if gpu_class not in classes or tier not in tiers:
                sentence = refusal_text("tier_unknown_here" if gpu_class in classes else "class_unknown_here")
                raise self.fault(("prices", gpu_class, tier), sentence)
        currency = self.values.get("currency") or currency_latest()
        wanted, missing = prices_proposed(classes, tiers, given, currency)
        if missing:
            gpu_class, tier = missing[0]
            sentence = refusal_text("no_typical_price", gpu_class=gpu_class, tier=tier)
            raise self.fault(("prices", gpu_class, tier), sentence)
        latest = PriceBook.objects.order_by("-version").first()
        known = prices_of(latest) if latest else {}
        if not wanted:
            return
        if is_new := (wanted != known):
            with self.at("prices"):
                price_book_publish(
                    actor_id=self.by.id,
                    valid_from=self.now,
                    prices=wanted,
                    peaks=peaks_kept(),
                    slices=slices_kept(),
                    note="First prices" if latest is None else "Prices for what is new",
                    currency=currency,
                    now=self.now,
                )
        differences = [
            f"{gpu_class} in {tier} is {known[gpu_class, tier]:f} here, {price:f} in the file"
            for (gpu_class, tier), price in given.items()
            if known.get((gpu_class, tier), price) != price
        ]
        if latest and currency != latest.currency:
            differences.append(f"currency is {latest.currency} here, {currency} in the file")
        self.outcome.note("price book", is_new=is_new, differences=differences)

    def nodes(self) -> None:
        for number, name in enumerate(self.values.get("approve", ())):
            node = Node.objects.select_for_update().filter(name=name).first()
            if node is None or node.state == Node.State.EXPECTED:
                text = "its agent has not been enrolled yet"
                self.outcome.note(f"node {name}", is_new=False, differences=[text])
                continue
            waits = node.state == Node.State.QUARANTINED
            if waits:
                with self.at("approve", number):
                    node_approve(operator=self.by, node=node, now=self.now)
            self.outcome.note(f"node {name}", is_new=waits)


class _Tenants:
    """Organisations of the file, each with its admin, quotas and projects."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def apply(self, key: Key, row: Mapping[str, Any]) -> None:
        found = Tenant.objects.filter(slug=row["slug"]).first()
        admin = row["admin"]
        person = User.objects.filter(username=admin["username"]).first()
        with self._run.at(*key, "admin"):
            if person is None:
                account = self._run.account((*key, "admin"), admin)
                person = account_create(operator=self._run.by, account=account, now=self._run.now)
                self._run.outcome.note(f"account {person.username}", is_new=True)
        with self._run.at(*key, params={"username": "admin"}):
            tenant = found or tenant_create(
                operator=self._run.by,
                slug=row["slug"],
                name=row["name"],
                admin=person.username,
                now=self._run.now,
            )
        differences = _differences(found, {"name": row["name"]})
        if not _administers(person, tenant):
            differences.append(f"{person.username} is no admin of it here")
        self._run.outcome.note(f"tenant {tenant.slug}", is_new=found is None, differences=differences)
        self._quotas(key, tenant, row.get("quota", {}))
        for number, project in enumerate(row.get("project", ())):
            self._project((*key, "project", number), tenant, project)

    def _quotas(self, key: Key, tenant: Tenant, quotas: Mapping[str, Mapping[str, Any]]) -> None:
        for gpu_class, row in quotas.items():
            with self._run.at(*key, "quota", gpu_class, params={"gpu_class": ""}):
                borrow = row.get("borrow")
                share = Share(
                    units_read(str(row["guaranteed"]), param="guaranteed"),
                    None if borrow is None else units_read(str(borrow), param="borrow"),
                )
                found = Quota.objects.filter(tenant=tenant, project=None, gpu_class_id=gpu_class).first()
                if found is None:
                    tenant_quota_set(
                        operator=self._run.by,
                        tenant=tenant,
                        gpu_class=gpu_class,
                        share=share,
                        now=self._run.now,
                    )
            stated = {
                "guaranteed_units": share.guaranteed_units,
                "borrow_limit_units": share.borrow_limit_units,
            }
            self._run.compare(f"quota of {tenant.slug} on {gpu_class}", found, stated)

    def _project(self, key: Key, tenant: Tenant, row: Mapping[str, Any]) -> None:
        found = Project.objects.filter(tenant=tenant, slug=row["slug"]).first()
        with self._run.at(*key):
            project = found or project_create(
                actor=self._for(tenant), slug=row["slug"], name=row["name"], now=self._run.now
            )
        self._run.compare(f"project {tenant.slug}/{project.slug}", found, {"name": row["name"]})
        if "budget" in row:
            self._budget(key, project, row, f"budget of {tenant.slug}/{project.slug}")

    def _budget(self, key: Key, project: Project, row: Mapping[str, Any], what: str) -> None:
        today = self._run.now.astimezone(UTC).date()
        amount = Decimal(row["budget"])
        found = Budget.objects.filter(
            level="project", project=project, starts__lte=today, ends__gt=today
        ).first()
        if found is None:
            until = row.get("budget_until")
            ends = date.fromisoformat(until) + timedelta(days=1) if until else today + _FOREVER
            with self._run.at(*key, params={"amount": "budget", "ends": "budget_until"}):
                budget_set(
                    actor_id=self._run.by.id,
                    project=project,
                    period=Period(month_of(today).starts, ends),
                    amount=amount,
                    now=self._run.now,
                )
        effect = budget_figures(project_id=project.id, at=self._run.now)
        here = effect.amount if effect else amount
        differences = [] if here == amount else [f"{here:f} here, {amount:f} in the file"]
        self._run.outcome.note(what, is_new=found is None, differences=differences)

    def _for(self, tenant: Tenant) -> Actor:
        """The operator as an admin of the tenant, for its set-up; the log names the operator."""
        return Actor(
            user_id=self._run.by.id,
            name=self._run.by.get_full_name(),
            tenant_id=tenant.id,
            tenant_slug=tenant.slug,
            is_tenant_admin=True,
            roles={},
        )


def _administers(person: User, tenant: Tenant) -> bool:
    return Membership.objects.filter(tenant=tenant, user=person, role=Role.TENANT_ADMIN).exists()


def _differences(row: object, stated: Mapping[str, object]) -> list[str]:
    if row is None:
        return []
    return [
        f"{name} is {getattr(row, name)} here, {value} in the file"
        for name, value in stated.items()
        if getattr(row, name) != value
    ]
