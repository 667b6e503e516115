"""Sets the labels and the ticket of a budget, which what it pays has, too."""

from collections.abc import Mapping
from datetime import datetime

from billing.models import Budget
from tenants.audit import audit_record
from tenants.platform.labels import labels_check, reference_check


def budget_labels_set(
    *,
    actor_id: int | None,
    budget: Budget,
    labels: Mapping[str, str] | None,
    external_ref: str | None,
    now: datetime,
) -> None:
    """Sets labels and reference; None keeps them. The caller has checked the actor's right.

    Raises:
        Refused: `bad_label`, `too_many_labels` or `bad_reference`.
    """
    before = {"labels": budget.labels, "external_ref": budget.external_ref}
    if labels is not None:
        budget.labels = labels_check(labels)
    if external_ref is not None:
        budget.external_ref = reference_check(external_ref)
    after = {"labels": budget.labels, "external_ref": budget.external_ref}
    if after != before:
        budget.save(update_fields=["labels", "external_ref"])
        audit_record(
            tenant_id=budget.tenant_id,
            actor_id=actor_id,
            action="budget.labels_set",
            target=("budget", budget.id),
            now=now,
            detail={"before": before, "after": after},
        )
