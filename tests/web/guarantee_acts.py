"""What operators can do with guarantees between dates."""

from django.utils import timezone

from tenants.models import DatedGuarantee
from tests.api.builders import Site
from tests.builders_allocation import HOUR
from tests.roles import as_owner
from tests.web.acts import Act
from tests.web.operator_sites import Values

_STARTS = timezone.now().replace(minute=0, second=0, microsecond=0) + 24 * HOUR
_ENDS = _STARTS + HOUR
_WHOSE = {"tenant": "helix", "gpu_class": "h100"}
_TYPED = {"gpus": "3", "starts": f"{_STARTS:%Y-%m-%dT%H:%M}", "ends": f"{_ENDS:%Y-%m-%dT%H:%M}"}
_SENT = {"guaranteed_units": 168_000, "starts": _STARTS.isoformat(), "ends": _ENDS.isoformat()}


def _to_come(site: Site) -> Values:
    with as_owner():
        row = DatedGuarantee.objects.create(
            tenant=site.tenant,
            gpu_class_id="h100",
            guaranteed_units=168_000,
            starts=_STARTS,
            ends=_ENDS,
            created=timezone.now() - HOUR,
            created_by=site.people["operator"],
        )
    return {"guarantee": str(row.id), "guarantee_id": str(row.id)}


_ENDED = Act("dated_guarantee.ended", "dated_guarantee", {}, _to_come, has_after=False)

_OF_TIERS = {"tiers": ["standard"], **_WHOSE}

GUARANTEE_ACTS: dict[str, Act] = {
    "ops/tier-guarantees set": Act("tier_guarantee.set", "tier_guarantee", {"gpus": "1", **_OF_TIERS}),
    "put api/v1/platform/tier-guarantees": Act(
        "tier_guarantee.set", "tier_guarantee", {"units": 56_000, **_OF_TIERS}
    ),
    "ops/dated-guarantees add": Act(
        "dated_guarantee.set", "dated_guarantee", _WHOSE | _TYPED, has_before=False
    ),
    "put api/v1/platform/dated-guarantees": Act(
        "dated_guarantee.set", "dated_guarantee", _WHOSE | _SENT, has_before=False
    ),
    "ops/dated-guarantees end": _ENDED,
    "post api/v1/platform/dated-guarantees/<uuid:guarantee_id>/end": _ENDED,
}
