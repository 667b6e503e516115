"""The page of one version of the policy."""

from datetime import datetime
from typing import Any

from allocation.api.fleet.policy import version_facts
from allocation.features.policy_lab.versions import (
    ActivateTerms,
    RollbackTerms,
    version_activate,
    version_approve,
    version_rollback,
    version_withdraw,
)
from allocation.models import PolicyActivation, PolicyVersion
from allocation.queries.decisions.policy_versions import VersionFacts
from allocation.services.policy.differences import difference_lines
from tenants.access import PlatformActor
from tenants.models import User
from tenants.platform.forms.actions import number_text_read
from tenants.queries import is_only_operator
from tenants.web.form_page import Act, operator_form_page

ACTS_SHOWN = 20


def operator_actor(operator: User) -> PlatformActor:
    """Returns the operator as the one who acts."""
    return PlatformActor(operator.pk, operator.display_name)


def _shown(actor: PlatformActor, now: datetime, number: int, against: str) -> dict[str, Any]:
    facts = version_facts(number)
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    other = _compared(facts, live, against)
    acts = PolicyActivation.objects.select_related("asked_by", "former").filter(version=number)
    is_mine = facts.version.created_by_id == actor.user_id
    return {
        "facts": facts,
        "live": live,
        "other": other,
        "others": PolicyVersion.objects.exclude(number=number).order_by("-number"),
        "lines": difference_lines(other.document, facts.version.document) if other else [],
        "acts": acts.order_by("-id")[:ACTS_SHOWN],
        "is_live": number == live.number,
        "is_mine": is_mine,
        "is_alone": is_only_operator(actor.user_id),
        "may_approve": not is_mine and facts.approval is None and facts.last is None,
        "may_go_back": facts.version.state == PolicyVersion.State.RETIRED,
    }


def _compared(facts: VersionFacts, live: PolicyVersion, against: str) -> PolicyVersion | None:
    """Returns the version to compare with: the one that is chosen, the live one, or its former."""
    chosen = number_text_read(against)
    found = PolicyVersion.objects.exclude(number=facts.number).filter(number=chosen or 0).first()
    if found is not None:
        return found
    if facts.number != live.number:
        return live
    return facts.last.former if facts.last else None


def _asked(facts: VersionFacts) -> str:
    """The sentence after an activation."""
    words = {
        "": "is in force. It applies from the next decision.",
        "second_operator": "waits for another operator's approval.",
        "waiting_time": "waits for a day, because there is no second operator.",
        "start": "goes into force at its time.",
    }
    return f"Version {facts.number} {words[facts.waits_for]}"


urlpatterns = [
    operator_form_page(
        "policy/versions/<int:number>",
        "ops-policy-version",
        "policy_lab/version.html",
        _shown,
        Act("activate", version_activate, _asked, terms=ActivateTerms),
        Act("approve", version_approve, "Version {row.number} approved."),
        Act("withdraw", version_withdraw, "Version {row.number} does not wait any more."),
        Act(
            "rollback",
            version_rollback,
            "Version {row.number} is in force again. It applies from the next decision.",
            terms=RollbackTerms,
        ),
        actor_of=operator_actor,
        queries=("against",),
    ),
]
