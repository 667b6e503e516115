"""REST of observed clusters (operators)."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.clusters.figures import Difference, Use, differences_of, use_of
from allocation.features.clusters.models import ObservedAccount, ObservedCluster, ObservedType
from allocation.features.clusters.services import (
    AccountTerms,
    JobsTerms,
    Kept,
    TypeTerms,
    account_assign,
    cluster_one,
    clusters_read,
    jobs_keep,
    type_assign,
)
from allocation.words.refusals import refusal_text
from billing.rules import Period
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Day, Strict, Text
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

USUAL, MOST = timedelta(days=7), timedelta(days=366)
rest = Endpoints(Scope.ADMIN, for_operators=True, area=Area.FLEET)


class ClusterOut(serializers.Serializer[Any]):
    """A cluster whose records are read."""

    slug = serializers.SlugField()
    engine = serializers.CharField()
    created = serializers.DateTimeField()
    read_at = serializers.DateTimeField(help_text="When records were read last.")
    jobs = serializers.IntegerField(help_text="That are kept.")
    running_gpus = serializers.IntegerField(source="running", help_text="Of jobs that ran then.")


class KeptOut(serializers.Serializer[Any]):
    """What was kept."""

    jobs = serializers.IntegerField()
    types = serializers.ListField(
        child=serializers.CharField(),
        help_text="Types that are no class here, so in no forecast.",
    )
    accounts = serializers.ListField(
        child=serializers.CharField(), help_text="Accounts of these jobs that are no project here."
    )


class AccountOut(serializers.Serializer[Any]):
    """An account of a cluster."""

    account = serializers.CharField(source="name")
    project = serializers.CharField(
        source="path", allow_blank=True, help_text="Such as `helix/vision`; empty: nobody's."
    )


class TypeOut(serializers.Serializer[Any]):
    """A type of GPU in a cluster."""

    type = serializers.CharField(source="name", allow_blank=True)
    gpu_class = serializers.CharField(source="gpu_class_id", allow_null=True)


class ClusterUseOut(serializers.Serializer[Any]):
    """What an account had of a class outside of bookings."""

    cluster = serializers.CharField()
    account = serializers.CharField()
    gpu_class = serializers.CharField(help_text="Its label, or the cluster's type where that is no class.")
    jobs = serializers.IntegerField()
    gpu_hours = serializers.DecimalField(max_digits=20, decimal_places=3, coerce_to_string=True)
    wait_p50_seconds = serializers.IntegerField(help_text="Of those that started.")


class ClusterDifferenceOut(serializers.Serializer[Any]):
    """A job of a booking that the cluster and the portal count differently."""

    job = serializers.CharField()
    tenant = serializers.CharField(allow_blank=True)
    booking = serializers.CharField(allow_blank=True, help_text="Empty: the portal counts none in the time.")
    portal_hours = serializers.DecimalField(max_digits=20, decimal_places=3, coerce_to_string=True)
    cluster_hours = serializers.DecimalField(max_digits=20, decimal_places=3, coerce_to_string=True)


def _query(name: str, default: str | None) -> type[Strict]:
    """The parameters; `from` is a word of Python."""
    asked = Text(max_length=40) if default is None else Text(max_length=40, required=False, default=default)
    fields: dict[str, Any] = {
        "__doc__": "UTC days [from, to), without them the last seven until now.",
        "cluster": asked,
        "from": Day(required=False),
        "to": Day(required=False, help_text="The first day after them."),
    }
    return type(name, (Strict,), fields)


def period_read(starts: date | None, ends: date | None, now: datetime) -> Period:
    """Reads UTC days. Raises Refused: `bad_period`."""
    ends = ends or now.astimezone(UTC).date() + timedelta(days=1)
    starts = starts or ends - USUAL
    if not timedelta(0) < ends - starts <= MOST:
        raise invalid("bad_period", refusal_text("cluster_period"), "from")
    return Period(starts, ends)


@rest.list("clusters", "List observed clusters (operators)", ClusterOut)
def list_clusters(call: ApiView) -> QuerySet[ObservedCluster]:
    """Returns clusters whose jobs are read; the portal decides nothing on them."""
    return clusters_read()


@rest.post("clusters/<slug:slug>/jobs", "Send records of a cluster (operators)", KeptOut, terms=JobsTerms)
def keep_cluster_jobs(call: ApiView, terms: JobsTerms, slug: str) -> Kept:
    """Keeps up to 1,000 jobs. A job is known by its number, its time of submission and its type: the same
    records again change nothing, later ones replace what was kept. `gpu import sacct` sends them."""
    return jobs_keep(actor=PlatformActor.of(call.user), slug=slug, terms=terms, now=call.now)


@rest.list("clusters/<slug:slug>/accounts", "List accounts of a cluster (operators)", AccountOut)
def list_cluster_accounts(call: ApiView, slug: str) -> QuerySet[ObservedAccount]:
    """Returns those that have sent jobs."""
    rows = ObservedAccount.objects.filter(cluster=cluster_one(slug))
    return rows.select_related("project__tenant")


@rest.put(
    "clusters/<slug:slug>/accounts",
    "Say whose work an account is (operators)",
    AccountOut,
    terms=AccountTerms,
)
def assign_cluster_account(call: ApiView, terms: AccountTerms, slug: str) -> ObservedAccount:
    """Its jobs, past ones too, are shown to the project's organisation. They are never charged."""
    return account_assign(actor=PlatformActor.of(call.user), slug=slug, terms=terms, now=call.now)


@rest.list("clusters/<slug:slug>/types", "List GPU types of a cluster (operators)", TypeOut)
def list_cluster_types(call: ApiView, slug: str) -> QuerySet[ObservedType]:
    """Returns those that jobs had."""
    return ObservedType.objects.filter(cluster=cluster_one(slug))


@rest.put("clusters/<slug:slug>/types", "Say which class a type is (operators)", TypeOut, terms=TypeTerms)
def assign_cluster_type(call: ApiView, terms: TypeTerms, slug: str) -> ObservedType:
    """Its jobs count in the class's forecasts. A type with the name of a class is assigned already."""
    return type_assign(actor=PlatformActor.of(call.user), slug=slug, terms=terms, now=call.now)


@rest.rows(
    "clusters/use",
    "GPU-hours of observed clusters outside of bookings (operators)",
    ClusterUseOut,
    query=_query("ClusterUseQuery", ""),
    kind="statement",
)
def list_cluster_use(call: ApiView) -> list[Use]:
    """Lists what accounts had of each class, the most first."""
    call.require_operator()
    with operator_tx():
        days = period_read(call.query.get("from"), call.query.get("to"), call.now)
        return use_of(days.first_second, days.last_second, call.query["cluster"])


@rest.rows(
    "clusters/differences",
    "Compare a cluster's records with the portal's (operators)",
    ClusterDifferenceOut,
    query=_query("ClusterDifferencesQuery", None),
    kind="statement",
)
def list_cluster_differences(call: ApiView) -> list[Difference]:
    """Lists jobs of bookings that both count differently by more than three minutes a GPU, the largest
    difference first, at most 500; until the records were read last."""
    call.require_operator()
    with operator_tx():
        days = period_read(call.query.get("from"), call.query.get("to"), call.now)
        return differences_of(cluster_one(call.query["cluster"]), days.first_second, days.last_second)


urlpatterns = rest.urls
