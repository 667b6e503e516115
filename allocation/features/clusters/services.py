"""Keeping what clusters' records say, and who and what their names stand for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import connection
from django.db.models import Count, F, Q, QuerySet, Sum

from allocation.features.clusters.models import ObservedAccount, ObservedCluster, ObservedJob, ObservedType
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.audit import platform_record
from tenants.models import GpuClass, Project
from tenants.platform.errors import invalid, missing
from tenants.platform.terms import term, terms

MOST_JOBS = 1_000
# Clocks of two machines differ.
AHEAD = timedelta(minutes=10)
# One reading comes in several parts.
AT_ONCE = timedelta(minutes=10)
# Jobs of the Slurm engine have the number that their allocation has.
_BOOKED = """
SELECT j.at FROM unnest(%(numbers)s::text[], %(begins)s::timestamptz[], %(ends)s::timestamptz[])
  WITH ORDINALITY AS j(number, begins, ends, at)
WHERE j.number ~ '^[0-9]{1,18}$' AND EXISTS (
  SELECT FROM allocation_allocation a
  WHERE a.job = j.number::bigint AND a.period && tstzrange(j.begins, j.ends, '[]'))
"""
_KEY = ("cluster", "number", "submitted", "gpu_type")
_CHANGING = [field.name for field in ObservedJob._meta.concrete_fields if field.name not in (*_KEY, "id")]


@terms
class JobTerms:
    """A job with GPUs of one type; one with several types is listed once for each."""

    number: str = term(says="Its number in the cluster.", max_length=64)
    gpu_type: str = term(
        says="The cluster's name of the GPU, empty without one.", default="", allow_blank=True, max_length=64
    )
    gpus: int = term(min_value=1, max_value=1_000_000)
    user: str = term(default="", allow_blank=True, max_length=64)
    account: str = term(default="", allow_blank=True, max_length=64)
    partition: str = term(default="", allow_blank=True, max_length=64)
    state: str = term(says="In the cluster's words.", max_length=24)
    nodes: str = term(default="", allow_blank=True, max_length=4_000)
    submitted: datetime = term()
    eligible: datetime = term(says="From when on it could start.")
    started: datetime | None = term(default=None)
    ended: datetime | None = term(default=None)
    limit_seconds: int | None = term(default=None, min_value=0, max_value=10**10)


@terms
class JobsTerms:
    """Records of a cluster."""

    jobs: Sequence[JobTerms] = term(says=f"At most {MOST_JOBS:,}.")
    engine: Literal["slurm", "kubernetes"] = term(
        default="slurm", says="What the cluster is, `slurm` or `kubernetes`; the first records say it."
    )


@terms
class AccountTerms:
    """Whose work the jobs of an account are."""

    account: str = term("Account", allow_blank=True, max_length=64)
    project: str = term(
        "Project",
        "Organisation and project, such as helix/vision; empty: nobody's.",
        default="",
        allow_blank=True,
        max_length=100,
    )


@terms
class TypeTerms:
    """Which class a cluster's type of GPU is."""

    type: str = term("Type", default="", allow_blank=True, max_length=64)
    gpu_class: str = term("GPU class", default="", says="Empty: none.", allow_blank=True, max_length=40)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a reading has kept: jobs, and the names that stand for nothing here yet."""

    jobs: int
    types: tuple[str, ...]
    accounts: tuple[str, ...]


def clusters_read() -> QuerySet[ObservedCluster]:
    """Returns the clusters with their `jobs` and the GPUs that ran (`running`) when they were read last.
    What was left out then runs no more: Kubernetes forgets pods that were deleted."""
    runs = Q(observedjob__ended=None, observedjob__started__isnull=False)
    runs &= Q(observedjob__read_at__gte=F("read_at") - AT_ONCE)
    return ObservedCluster.objects.annotate(
        jobs=Count("observedjob"), running=Sum("observedjob__gpus", filter=runs, default=0)
    )


def cluster_one(slug: str) -> ObservedCluster:
    """Returns a cluster. Raises Refused: `not_found`."""
    found = clusters_read().filter(slug=slug).first()
    if found is None:
        raise missing("cluster")
    return found


def jobs_keep(*, actor: PlatformActor | None, slug: str, terms: JobsTerms, now: datetime) -> Kept:
    """Keeps records of a cluster; the same records again change nothing. The first ones make the cluster.

    Raises:
        Refused: `out_of_range` or `bad_times`.
    """
    if not 0 < len(terms.jobs) <= MOST_JOBS:
        raise invalid("out_of_range", refusal_text("job_count", most=f"{MOST_JOBS:,}"), "jobs")
    for at, job in enumerate(terms.jobs):
        _times_check(at, job, now)
    cluster, is_new = ObservedCluster.objects.get_or_create(
        slug=slug, defaults={"engine": terms.engine, "created": now, "read_at": now}
    )
    if is_new:
        operator = actor.user_id if actor else None
        platform_record(operator, "cluster.observed", ("cluster", slug), now, after={"cluster": slug})
    ObservedCluster.objects.filter(slug=slug, read_at__lt=now).update(read_at=now)
    accounts = _accounts(cluster, {job.account for job in terms.jobs})
    types = _types(cluster, {job.gpu_type for job in terms.jobs})
    rows = _rows(cluster, terms.jobs, accounts, types, now)
    ObservedJob.objects.bulk_create(rows, update_conflicts=True, unique_fields=_KEY, update_fields=_CHANGING)
    return Kept(
        len(rows),
        tuple(sorted(name for name, row in types.items() if row.gpu_class_id is None)),
        tuple(sorted(name for name, row in accounts.items() if row.project_id is None)),
    )


def _rows(
    cluster: ObservedCluster,
    jobs: Sequence[JobTerms],
    accounts: Mapping[str, ObservedAccount],
    types: Mapping[str, ObservedType],
    now: datetime,
) -> list[ObservedJob]:
    """The rows of jobs. One statement can't change a row twice: the last record of a job counts."""
    booked = _booked(jobs, now)
    rows = {
        (job.number, job.submitted, job.gpu_type): ObservedJob(
            cluster=cluster,
            number=job.number,
            account=job.account,
            tenant_id=accounts[job.account].tenant_id,
            project_id=accounts[job.account].project_id,
            gpu_type=job.gpu_type,
            gpu_class_id=types[job.gpu_type].gpu_class_id,
            gpus=job.gpus,
            person=job.user,
            partition=job.partition,
            state=job.state,
            nodes=job.nodes,
            submitted=job.submitted,
            eligible=max(job.eligible, job.submitted),
            started=job.started,
            ended=job.ended,
            limit_seconds=job.limit_seconds,
            is_booking=at in booked,
            read_at=now,
        )
        for at, job in enumerate(jobs, start=1)
    }
    return list(rows.values())


def account_assign(*, actor: PlatformActor, slug: str, terms: AccountTerms, now: datetime) -> ObservedAccount:
    """Says whose work the jobs of an account are, those of the past too.

    Raises:
        Refused: `not_found`.
    """
    rows = ObservedAccount.objects.select_for_update(of=("self",)).select_related("project__tenant")
    account = rows.filter(cluster=cluster_one(slug), name=terms.account).first()
    if account is None:
        raise missing("account", "account")
    before, account.project = account.path, _project(terms.project)
    account.tenant_id = account.project.tenant_id if account.project else None
    account.save(update_fields=["project", "tenant"])
    jobs = ObservedJob.objects.filter(cluster=slug, account=account.name)
    jobs.update(tenant=account.tenant_id, project=account.project)
    _assigned(actor, "account", slug, (terms.account, before, account.path), now)
    return account


def type_assign(*, actor: PlatformActor, slug: str, terms: TypeTerms, now: datetime) -> ObservedType:
    """Says which class a cluster's type of GPU is, for jobs of the past too.

    Raises:
        Refused: `not_found`.
    """
    found = (
        ObservedType.objects.select_for_update().filter(cluster=cluster_one(slug), name=terms.type).first()
    )
    if found is None:
        raise missing("GPU type", "type")
    before, found.gpu_class = found.gpu_class_id, _class(terms.gpu_class)
    found.save(update_fields=["gpu_class"])
    # The time of reading makes the next forecast count their hours again.
    jobs = ObservedJob.objects.filter(cluster=slug, gpu_type=terms.type)
    jobs.update(gpu_class=found.gpu_class, read_at=now)
    _assigned(actor, "type", slug, (terms.type, before or "", terms.gpu_class), now)
    return found


def _assigned(
    actor: PlatformActor, noun: str, slug: str, change: tuple[str, str, str], now: datetime
) -> None:
    name, before, after = change
    platform_record(
        actor.user_id,
        f"cluster.{noun}_assigned",
        ("cluster", slug),
        now,
        before={name or "(no name)": before},
        after={name or "(no name)": after},
    )


def _times_check(at: int, job: JobTerms, now: datetime) -> None:
    times = [each for each in (job.submitted, job.started, job.ended) if each is not None]
    if times != sorted(times):
        raise invalid("bad_times", refusal_text("job_times", number=job.number), f"jobs.{at}.submitted")
    if times[-1] > now + AHEAD:
        raise invalid("bad_times", refusal_text("job_ahead", number=job.number), f"jobs.{at}.ended")


def _accounts(cluster: ObservedCluster, names: set[str]) -> Mapping[str, ObservedAccount]:
    ObservedAccount.objects.bulk_create(
        [ObservedAccount(cluster=cluster, name=name) for name in sorted(names)], ignore_conflicts=True
    )
    return {row.name: row for row in ObservedAccount.objects.filter(cluster=cluster, name__in=names)}


def _types(cluster: ObservedCluster, names: set[str]) -> Mapping[str, ObservedType]:
    """A type whose name is that of a class is taken for it."""
    classes = {row.slug: row for row in GpuClass.objects.filter(slug__in=[each.lower() for each in names])}
    ObservedType.objects.bulk_create(
        [
            ObservedType(cluster=cluster, name=name, gpu_class=classes.get(name.lower()))
            for name in sorted(names)
        ],
        ignore_conflicts=True,
    )
    return {row.name: row for row in ObservedType.objects.filter(cluster=cluster, name__in=names)}


def _booked(jobs: Sequence[JobTerms], now: datetime) -> set[int]:
    """The places, from 1 on, of jobs that hold the devices of bookings."""
    facts: dict[str, Any] = {
        "numbers": [job.number for job in jobs],
        "begins": [job.submitted for job in jobs],
        "ends": [job.ended or max(now, job.submitted) for job in jobs],
    }
    with connection.cursor() as cursor:
        cursor.execute(_BOOKED, facts)
        return {row[0] for row in cursor.fetchall()}


def _project(name: str) -> Project | None:
    if not name:
        return None
    tenant, _, slug = name.partition("/")
    found = Project.objects.filter(tenant__slug=tenant, slug=slug).first()
    if found is None:
        raise missing("project", "project")
    return found


def _class(name: str) -> GpuClass | None:
    if not name:
        return None
    found = GpuClass.objects.filter(slug=name).first()
    if found is None:
        raise missing("GPU class", "gpu_class")
    return found
