"""The page of labs: who uses what, limits of persons, and limits at some times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.fleet.catalogue import class_labels
from allocation.queries.limits.tree import quota_tree
from allocation.web.limits.cut_question import choices_of, effects_of, lost_by, title_of
from allocation.web.limits.words import DAYS, tree_cards, window_words
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.lab_queries import (
    labs_led,
    labs_seen,
    person_quotas_seen,
    projects_seen,
    quota_windows_seen,
)
from tenants.models import GpuClass, Lab, LabLead, Project, QuotaWindow
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.services import Share, ShareMore, gpus_text, units_read, whole_read, whole_sent
from tenants.services.labs.labs import (
    lab_create,
    lab_lead_add,
    lab_lead_remove,
    lab_open_set,
    lab_rename,
    project_lab_set,
)
from tenants.services.labs.limits import lab_quota_set, person_quota_set
from tenants.services.labs.windows import WindowOf, WindowTerms, window_add, window_remove
from tenants.services.limit_changes import CHOSEN, Cut, answer_of
from tenants.web.frame import tenant_page
from tenants.web.parts import Field

Choices = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class LabCard:
    """A lab with its projects and leads."""

    lab: Lab
    projects: tuple[Project, ...]
    leads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PersonRow:
    """The limit of a person, or of everybody."""

    where: str
    project: str
    who: str
    username: str
    gpu_class: str
    label: str
    limit: str
    may_change: bool


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A limit at some times."""

    id: UUID
    owner: str
    gpu_class: str
    limit: str
    when: str
    may_remove: bool


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def labs_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows labs and limits; admins change them, leads those of their labs and projects."""
    refusal = None
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "create": lambda form: _create(actor, form),
            "rename": lambda form: _rename(actor, form),
            "archive": lambda form: _archive(actor, form),
            "move": lambda form: _move(actor, form),
            "lead": lambda form: _lead(actor, form),
            "unlead": lambda form: _unlead(actor, form),
            "quota": lambda form: _quota(actor, form, Cut(answer_of(form))),
            "person": lambda form: _person(actor, form, Cut(answer_of(form))),
            "window": lambda form: _window(actor, form, Cut(answer_of(form))),
            "remove": lambda form: _remove(actor, form, Cut(answer_of(form))),
        }
        if (asked := _cut_question(actor, request.POST, request.path)) is not None:
            return confirm_page(request, asked)
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("labs", tenant=actor.tenant_slug)
    context = _context(actor, timezone.now())
    context["forms"] = _forms(actor, context["projects"], request.POST, refusal)
    context["refusal"] = refusal
    return render(request, "allocation/limits/labs.html", context, status=422 if refusal else 200)


def _cut_question(actor: Actor, form: QueryDict, back: str) -> Confirmation | None:
    """Returns the question before a limit of a lab or a person is set below what is in use or booked."""
    acts = {"quota": _quota, "person": _person, "window": _window, "remove": _remove}
    save = acts.get(form.get("act", ""))
    if save is None or CONFIRMED_FIELD in form:
        return None
    effects = effects_of(lambda cut: save(actor, form, cut))
    now, zone = timezone.now(), timezone.get_current_timezone()
    lost = tuple(sentence for each in effects for sentence in lost_by(each, zone, now))
    if not effects:
        return None
    title = title_of(effects)
    return Confirmation(
        title, lost, "Lower the limit", back, "Keep the limit", chosen=CHOSEN, choices=choices_of(effects)
    )


def _context(actor: Actor, now: datetime) -> dict[str, Any]:
    led = labs_led(actor)
    projects = list(projects_seen(actor, led))
    labs = [_card(lab, projects) for lab in labs_seen(actor).filter(is_open=True)]
    return {
        "trees": tree_cards(quota_tree(actor, now)),
        "labs": labs,
        "projects": projects,
        "persons": _persons(actor, projects, led),
        "windows": [_window_row(actor, row, led) for row in quota_windows_seen(actor)],
    }


def _card(lab: Lab, projects: Sequence[Project]) -> LabCard:
    leads = LabLead.objects.filter(lab=lab).order_by("user__username")
    return LabCard(
        lab,
        tuple(project for project in projects if project.lab_id == lab.id),
        tuple(leads.values_list("user__username", flat=True)),
    )


def _may_limit(actor: Actor, project: Project | None, led: set[UUID]) -> bool:
    if project is None or actor.is_tenant_admin:
        return actor.is_tenant_admin
    return actor.may_lead(project.id) or project.lab_id in led


def _persons(actor: Actor, projects: Sequence[Project], led: set[UUID]) -> list[PersonRow]:
    by_id = {project.id: project for project in projects}
    return [
        PersonRow(
            where=row.project.name if row.project else "The whole organisation",
            project=row.project.slug if row.project else "",
            who=row.user.display_name if row.user else "Everybody else",
            username=row.user.username if row.user else "",
            gpu_class=row.gpu_class_id,
            label=row.gpu_class.label,
            limit=gpus_text(row.limit_units),
            may_change=_may_limit(actor, by_id.get(row.project_id) if row.project_id else None, led),
        )
        for row in person_quotas_seen(actor)
    ]


def _window_row(actor: Actor, row: QuotaWindow, led: set[UUID]) -> WindowRow:
    owner = row.project or row.lab
    is_leads = row.project is not None and row.project.lab_id in led
    name = owner.name if owner else "The whole organisation"
    if row.user is not None:
        name = f"{row.user.display_name} in {name}"
        is_leads = _may_limit(actor, row.project, led)
    return WindowRow(
        row.id,
        name,
        row.gpu_class.label,
        gpus_text(row.limit_units),
        window_words(row),
        may_remove=not row.is_of_tenant and (actor.is_tenant_admin or is_leads),
    )


def _create(actor: Actor, form: QueryDict) -> str:
    lab = lab_create(actor=actor, slug=form.get("slug", ""), name=form.get("name", ""), now=timezone.now())
    return f"{lab.name} is there. Move projects into it, and set its quotas."


def _rename(actor: Actor, form: QueryDict) -> str:
    lab = lab_rename(actor=actor, slug=form.get("lab", ""), name=form.get("name", ""), now=timezone.now())
    return f"The lab is now called {lab.name}."


def _archive(actor: Actor, form: QueryDict) -> str:
    lab = lab_open_set(actor=actor, slug=form.get("lab", ""), is_open=False, now=timezone.now())
    return f"{lab.name} is archived."


def _move(actor: Actor, form: QueryDict) -> str:
    project = project_lab_set(
        actor=actor,
        project=form.get("project", ""),
        lab=form.get("lab", "") or None,
        now=timezone.now(),
    )
    return f"{project.name} is in {project.lab.name if project.lab else 'no lab'}."


def _lead(actor: Actor, form: QueryDict) -> str:
    name = form.get("username", "").strip()
    lab_lead_add(actor=actor, slug=form.get("lab", ""), username=name, now=timezone.now())
    return f"{name} leads the lab and sets the quotas of its projects."


def _unlead(actor: Actor, form: QueryDict) -> str:
    name = form.get("username", "")
    lab_lead_remove(actor=actor, slug=form.get("lab", ""), username=name, now=timezone.now())
    return f"{name} leads the lab no more."


def _quota(actor: Actor, form: QueryDict, cut: Cut) -> str:
    borrow, lend = (form.get(name, "").strip() for name in ("borrow", "lend"))
    quota = lab_quota_set(
        actor=actor,
        lab=form.get("lab", ""),
        gpu_class=form.get("gpu_class", ""),
        share=Share(
            units_read(form.get("guaranteed", ""), param="guaranteed"),
            units_read(borrow, param="borrow") if borrow else None,
            units_read(lend, param="lend") if lend else None,
            ShareMore(
                cap_gpu_hours=whole_sent(form, "cap_gpu_hours"),
                cap_days=whole_sent(form, "cap_days"),
                cap_carries="cap_carries" in form,
            ),
        ),
        now=timezone.now(),
        cut=cut,
    )
    return f"{quota.lab.name}: {gpus_text(quota.guaranteed_units)} {quota.gpu_class.label} guaranteed."


def _person(actor: Actor, form: QueryDict, cut: Cut) -> str:
    limit = form.get("limit", "").strip()
    who = form.get("username", "").strip()
    person_quota_set(
        actor=actor,
        project=form.get("project", "") or None,
        username=who or None,
        gpu_class=form.get("gpu_class", ""),
        limit_units=units_read(limit, param="limit") if limit else None,
        now=timezone.now(),
        cut=cut,
    )
    where, name = form.get("project", "") or "the whole organisation", form.get("gpu_class", "")
    most = f"at most {limit} {class_labels().get(name, name)} at once" if limit else "no limit"
    return f"{who or 'Everybody'} in {where}: {most}."


def _window(actor: Actor, form: QueryDict, cut: Cut) -> str:
    kind, _, slug = form.get("owner", "").partition(":")
    row = window_add(
        actor=actor,
        of=WindowOf(
            slug if kind == "project" else None,
            slug if kind == "lab" else None,
            form.get("username", "").strip() or None,
        ),
        gpu_class=form.get("gpu_class", ""),
        terms=WindowTerms(
            limit_units=units_read(form.get("at_most", ""), param="at_most"),
            first_day=_day(form, "first_day"),
            last_day=_day(form, "last_day"),
            weekdays=[DAYS.index(day) for day in form.getlist("weekdays") if day in DAYS],
            first_hour=whole_read(form.get("first_hour", "0"), param="first_hour"),
            end_hour=whole_read(form.get("end_hour", "24"), param="end_hour"),
            zone=actor.time_zone,
        ),
        now=timezone.now(),
        cut=cut,
    )
    return f"At most {gpus_text(row.limit_units)} {row.gpu_class.label}: {window_words(row)}."


def _remove(actor: Actor, form: QueryDict, cut: Cut) -> str:
    window_id = id_read(form, "window", "limit")
    window_remove(actor=actor, window_id=window_id, now=timezone.now(), cut=cut)
    return "The limit is removed."


def _day(form: QueryDict, name: str) -> date | None:
    text = form.get(name, "").strip()
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise invalid("bad_date", refusal_text("bad_date"), name) from error


class _Fields:
    """Fields of several forms: one that was refused has what was typed, others are new."""

    def __init__(self, sent: QueryDict, refusal: Refused | None) -> None:
        self._sent, self._refusal = sent, refusal

    def field(self, of: str, name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401
        """The field of a form; `value` is what it has before somebody types."""
        value, error = more.pop("value", ""), ""
        if self._refusal is not None and self._sent.get("act") == of:
            value = self._sent.get(name, "")
            error = self._refusal.sentence if self._refusal.param == name else ""
        return Field(name, label, value, hint=hint, error=error, required=False, id=f"{of}-{name}", **more)


def _forms(
    actor: Actor, projects: Sequence[Project], sent: QueryDict, refusal: Refused | None
) -> dict[str, Any]:
    """The fields of the forms: empty, or as typed when one was refused."""
    field = _Fields(sent, refusal).field
    labs = [(lab.slug, lab.name) for lab in labs_seen(actor).filter(is_open=True)]
    classes = list(GpuClass.objects.values_list("slug", "label"))
    led = labs_led(actor)
    mine = [each for each in projects if _may_limit(actor, each, led)]
    where = [(each.slug, each.name) for each in mine]
    owners = [(f"project:{each.slug}", each.name) for each in mine]
    if actor.is_tenant_admin:
        owners = [("", "The whole organisation (a person)"), *owners]
        owners += [(f"lab:{slug}", f"{name} (lab)") for slug, name in labs]
    whole = [("", "The whole organisation")] if actor.is_tenant_admin else []
    is_typed = refusal is not None and sent.get("act") == "window"
    chosen = set(sent.getlist("weekdays")) if is_typed else set()
    return {
        **_lab_forms(field, labs, classes, where),
        "person": [
            field("person", "project", "In", choices=[*whole, *where]),
            field("person", "username", "Sign-in name", "Empty: everybody without an own limit."),
            field("person", "gpu_class", "GPU class", choices=classes),
            field("person", "limit", "GPUs at once", "Empty: no limit.", inputmode="decimal"),
        ],
        "window": [
            field("window", "owner", "For", choices=owners),
            field("window", "username", "Sign-in name", "Empty: everybody there together."),
            field("window", "gpu_class", "GPU class", choices=classes),
            field("window", "at_most", "GPUs at once", inputmode="decimal"),
            field("window", "first_day", "First day", type="date"),
            field("window", "last_day", "Last day", type="date"),
            field("window", "first_hour", "From hour", value="0", inputmode="numeric"),
            field("window", "end_hour", "To hour", "6 after 22: on the next day.", value="24"),
        ],
        "days": [(day, day, day in chosen) for day in DAYS],
        "zone": actor.time_zone,
        "has_labs": bool(labs),
        "may_limit": bool(where or whole),
        "may_time": bool(owners),
    }


def _lab_forms(
    field: Callable[..., Field], labs: Choices, classes: Choices, projects: Choices
) -> dict[str, list[Field]]:
    """The forms of labs themselves."""
    return {
        "create": [
            field("create", "name", "Name"),
            field("create", "slug", "Short name", "Lowercase letters, digits and hyphens."),
        ],
        "move": [
            field("move", "project", "Project", choices=projects),
            field("move", "lab", "Lab", choices=[("", "No lab"), *labs]),
        ],
        "lead": [
            field("lead", "lab", "Lab", choices=labs),
            field("lead", "username", "Sign-in name", "Sets quotas of the lab's projects."),
        ],
        "quota": [
            field("quota", "lab", "Lab", choices=labs),
            field("quota", "gpu_class", "GPU class", choices=classes),
            field("quota", "guaranteed", "GPUs guaranteed", inputmode="decimal"),
            field("quota", "borrow", "Borrows at most", placeholder="no limit"),
            field("quota", "lend", "Lends at most", placeholder="all"),
            field("quota", "cap_gpu_hours", "GPU-hours at most", placeholder="no cap"),
            field("quota", "cap_days", "In days in a row", "Empty: in each month of UTC."),
        ],
    }


urlpatterns = [path("t/<slug:tenant>/labs", labs_page, name="labs")]
