"""The page on which operators play the past with more GPUs, and what organisations read of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from allocation.features.policy_lab.models import PolicyTrial, PolicyTrialTenant
from allocation.features.policy_lab.plays.fleets import FleetTerms, fleet_words
from allocation.features.policy_lab.results import EFFECTS, SIDES, TOTALS
from allocation.features.policy_lab.trials import TrialTerms, trial_ask, trial_cancel
from allocation.models import PolicyVersion
from allocation.points.fleets import MORE_GPUS, MoreGpus, WaitChange
from allocation.queries.fleet.catalogue import class_labels
from tenants.access import PlatformActor
from tenants.platform.terms import term, terms
from tenants.rules.operator_roles import Area
from tenants.web.form_page import Act, operator_form_page

SHOWN = 10
SHOWN_OF_TENANT = 5
# Longer pasts are for trials of the policy: these are asked for again and again.
MOST_DAYS = 28
_FIGURES = ("started", "pauses", "gpu_seconds", "utilisation_ppm")


@terms
class MoreTerms:
    """More GPUs on the past."""

    gpu_class: str = term("GPU class", max_length=40)
    gpus: int = term("More GPUs", default=8, min_value=1, max_value=512)
    days: int = term("Days of the past", default=7, min_value=1, max_value=MOST_DAYS)
    from_hour: int | None = term(
        "From hour of the day (UTC)",
        "Optional: a burst, there in these hours only.",
        default=None,
        min_value=0,
        max_value=23,
    )
    to_hour: int | None = term(
        "To hour of the day (UTC)", "Optional.", default=None, min_value=1, max_value=24
    )


def _ask(*, actor: PlatformActor, terms: MoreTerms, now: datetime) -> PolicyTrial:
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    fleet = FleetTerms(
        gpu_class=terms.gpu_class,
        gpus=terms.gpus,
        from_hour=terms.from_hour or 0,
        to_hour=terms.to_hour or 24,
    )
    asked = TrialTerms(candidate=live.number, days=terms.days, seeds=1, fleet=fleet)
    return trial_ask(terms=asked, operator_id=actor.user_id, now=now)


def _cancel(*, actor: PlatformActor, trial_id: UUID, now: datetime) -> PolicyTrial:
    return trial_cancel(trial_id=trial_id, operator_id=actor.user_id, now=now)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A trial in words: figures of the site with both fleets, and the waits of each organisation."""

    trial: PolicyTrial
    words: str
    is_open: bool
    percent: int
    figures: list[tuple[str, str, str]]
    waits: list[WaitChange]


def _shown(actor: PlatformActor, now: datetime) -> dict[str, Any]:
    labels = class_labels()
    rows = [_trial(each, labels) for each in PolicyTrial.objects.exclude(fleet={})[:SHOWN]]
    return {"rows": rows, "is_open": any(row.is_open for row in rows), "now": now}


def words_of(trial: PolicyTrial | PolicyTrialTenant, labels: Mapping[str, str] | None = None) -> str:
    """The GPUs that a trial adds."""
    fleet = FleetTerms(**trial.fleet)
    return fleet_words(fleet, (labels or class_labels()).get(fleet.gpu_class, fleet.gpu_class))


def _trial(trial: PolicyTrial, labels: Mapping[str, str]) -> _Shown:
    report: dict[str, Any] = trial.report or {}
    sides = [report["totals"][side] for side in SIDES] if report else []
    figures = [
        (label, f"{sides[0][name] / scale:,.0f}", f"{sides[1][name] / scale:,.0f}")
        for label, name, scale in (TOTALS if sides else ())
        if name in _FIGURES
    ]
    return _Shown(
        trial,
        words_of(trial, labels),
        trial.state in PolicyTrial.OPEN,
        trial.permille // 10,
        figures,
        [_change(row) for row in report.get("tenants", ()) if row["asked"]],
    )


def _change(row: dict[str, Any]) -> WaitChange:
    before, after = (row[side] for side in SIDES)
    return WaitChange(
        row["name"],
        row["asked"],
        before["p50"],
        after["p50"],
        before["p95"],
        after["p95"],
        EFFECTS[row["effect"]],
    )


def more_gpus_read(tenant_id: UUID) -> Iterator[MoreGpus]:
    """What the newest trials say of an organisation."""
    labels = class_labels()
    for row in PolicyTrialTenant.objects.filter(tenant_id=tenant_id)[:SHOWN_OF_TENANT]:
        yield MoreGpus(
            words_of(row, labels), row.days, row.until, [_change(each) for each in row.rows if each["asked"]]
        )


def _classes(actor: PlatformActor) -> list[tuple[str, str]]:
    return list(class_labels().items())


MORE_GPUS.append(more_gpus_read)
urlpatterns = [
    operator_form_page(
        "capacity/trials",
        "ops-capacity-trials",
        "policy_lab/more_gpus.html",
        _shown,
        Act(
            "ask",
            _ask,
            "The past is played with more GPUs. It begins within seconds.",
            terms=MoreTerms,
            choices={"gpu_class": _classes},
        ),
        Act("cancel", _cancel, "The trial is cancelled.", key="trial"),
        area=Area.FLEET,
    ),
]
