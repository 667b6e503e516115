"""What operators can do with zones, storage and energy, and with engines."""

from tests.web import operator_sites as sites
from tests.web.acts import Act

_ZONE = {"zone": "basel", "name": "Basel", "time_zone": "Europe/Zurich", "price": "0.3"}
_ENERGY = {"tier": "standard", "prefers": "price", "hours": 6}
_STORAGE = {"storage": "local", "scratch_gb": 500}
_ENDED = Act("zone.ended", "zone", {}, sites.zoned, has_after=False)

_ENGINE = Act("engine.enrolment_token_made", "engine", {"engine": "main", "rack": "z9"}, has_before=False)
_ROTATED = Act("engine.key_rotated", "engine", {}, sites.engaged)
_LOCKED_OUT = Act("engine.locked_out", "engine", {}, sites.engaged)

FLEET_ACTS: dict[str, Act] = {
    "ops/engines enrol": _ENGINE,
    "post api/v1/fleet/engines": _ENGINE,
    "ops/engines/<slug:name> approve": Act(
        "node.joined_engine", "node", {"hosts": "n9"}, sites.engaged, has_before=False
    ),
    "post api/v1/fleet/engines/<slug:name>/approve": Act(
        "node.joined_engine", "node", {"hosts": ["n9"]}, sites.engaged, has_before=False
    ),
    "ops/engines/<slug:name> rotate": _ROTATED,
    "post api/v1/fleet/engines/<slug:name>/rotate-key": _ROTATED,
    "ops/engines/<slug:name> revoke": _LOCKED_OUT,
    "post api/v1/fleet/engines/<slug:name>/revoke": _LOCKED_OUT,
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
