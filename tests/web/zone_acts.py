"""What operators can do with zones, storage and energy."""

from tests.web import operator_sites as sites
from tests.web.acts import Act

_ZONE = {"zone": "basel", "name": "Basel", "time_zone": "Europe/Zurich", "price": "0.3"}
_ENERGY = {"tier": "standard", "prefers": "price", "hours": 6}
_STORAGE = {"storage": "local", "scratch_gb": 500}
_ENDED = Act("zone.ended", "zone", {}, sites.zoned, has_after=False)

ZONE_ACTS: dict[str, Act] = {
    "ops/zones add": Act("zone.set", "zone", _ZONE, has_before=False),
    "put api/v1/platform-zones": Act("zone.set", "zone", _ZONE | {"price": ["0.3"]}, has_before=False),
    "ops/zones/<slug:slug> change": Act("zone.set", "zone", _ZONE, sites.zoned),
    "ops/zones/<slug:slug> end": _ENDED,
    "post api/v1/platform-zones/<slug:slug>/end": _ENDED,
    "ops/zones energy": Act("tier.energy_set", "tier", _ENERGY),
    "put api/v1/platform-tier-energy": Act("tier.energy_set", "tier", _ENERGY),
    "ops/nodes/<slug:node>/storage set": Act("node.storage_set", "node", _STORAGE),
    "put api/v1/fleet/nodes/<slug:name>/storage": Act("node.storage_set", "node", _STORAGE),
}
