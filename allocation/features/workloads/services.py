"""The workloads of the projects that somebody may see."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from uuid import UUID

from allocation.access import access_booking_to_change
from allocation.features.workloads.profiles import Profile, profiles_of, rated_runs
from allocation.features.workloads.rates import rates_of
from allocation.features.workloads.runs import FinishedRun, runs_of, runs_of_projects
from allocation.models import Booking
from allocation.points import WorkRate
from allocation.rules.workload_names import LABEL, MOST, workload_slug
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.lab_queries import labs_led, projects_seen
from tenants.models import Project
from tenants.platform.errors import invalid, missing, text_within
from tenants.platform.terms import term, terms


@terms
class WorkloadTerms:
    """The workload of a booking."""

    name: str | None = term(
        "Workload",
        says="A short name for the kind of its work. Null: by the name of the booking.",
        max_length=63,
        default=None,
    )


@dataclass(frozen=True)
class Workload:
    """A workload of a project with its newest runs, the newest first."""

    project: Project
    name: str
    runs: tuple[FinishedRun, ...]

    @cached_property
    def profiles(self) -> tuple[Profile, ...]:
        """What its runs have shown, by class and slice; not every reader of a workload needs it."""
        return tuple(profiles_of(self.runs))


def booking_workload_set(*, actor: Actor, reference: str, terms: WorkloadTerms, now: datetime) -> Booking:
    """Names the workload of a booking, at any time. It is the label `workload`.

    Raises:
        Refused: `not_found`, `not_allowed` or `workload_name`.
    """
    booking = access_booking_to_change(actor, reference)
    name = workload_slug(text_within(terms.name or "", MOST, "name"))
    if terms.name is not None and not name:
        raise invalid("workload_name", refusal_text("workload_name"), "name")
    labels = {key: value for key, value in booking.labels.items() if key != LABEL}
    if name:
        labels[LABEL] = name
    return booking_patch(actor=actor, booking=booking, patch=Patch(labels=labels), revision=None, now=now)


def projects_with_workloads(actor: Actor) -> list[Project]:
    """The projects whose workloads the person may see, by name."""
    return list(projects_seen(actor, labs_led(actor)))


def project_with_workloads(actor: Actor, slug: str) -> Project:
    """One of these projects. Raises Refused: `not_found`."""
    project = projects_seen(actor, labs_led(actor)).filter(slug=slug).first()
    if project is None:
        raise missing("project")
    return project


def workloads_of(projects: list[Project], name: str = "", *, with_use: bool = True) -> list[Workload]:
    """The workloads of projects, or those with a name; the newest first. Without use only runs count."""
    of = {project.id: project for project in projects}
    runs = (
        [run for project in projects for run in runs_of(project.id, name)]
        if name
        else runs_of_projects([*of], with_use=with_use)
    )
    groups: dict[tuple[UUID, str], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault((run.project_id, run.workload), []).append(run)
    return [Workload(of[project], each, tuple(rows)) for (project, each), rows in groups.items()]


def workload_of_project(project: Project, name: str) -> Workload:
    """One workload of a project. Raises Refused: `not_found`, nothing has finished."""
    for found in workloads_of([project], name):
        return found
    raise missing("workload")


def work_rates_read(project_id: UUID, workload: str) -> Mapping[str, WorkRate]:
    """What is learnt of the speed of a workload in a project, by class, from its newest finished runs."""
    return rates_of(rated_runs(runs_of(project_id, workload, with_use=False)))
