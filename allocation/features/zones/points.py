"""What zones add to the core: sentences and words of the log."""

from allocation.features.zones.models import TierEnergy
from allocation.points import ENERGY_WAITS
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS


def _waits() -> dict[str, tuple[str, int]]:
    rows = TierEnergy.objects.order_by("tier").values_list("tier_id", "prefers", "hours")
    return {tier: (prefers, hours * 3_600) for tier, prefers, hours in rows}


ENERGY_WAITS.append(_waits)
sentences_add(
    {
        "zone_word": (
            "“%(word)s” has a meaning in request lines, or is another zone: a line that names it would say"
            " something else. “%(works)s” works."
        ),
        "zone_slug": "Name the zone by small letters, digits and dashes, such as basel-2.",
        "zone_time_zone": "There is no such time zone. Name one as Europe/Zurich.",
        "zone_price": "Give one price or 24, each from 0 to %(most)s with at most four places.",
        "zone_grams": "Give one whole number or 24, each from 0 to %(most)s.",
        "zone_no_rack": "There is no rack %(rack)s.",
        "zone_other": "Rack %(rack)s stands in %(zone)s. Take it out there first.",
        "zone_has_racks": "Racks stand in it: %(racks)s. Take them out first.",
        "too_many_zones": "There are %(most)s zones already. End one of them first.",
        "energy_hours": "Let it wait for 1 to %(most)s hours.",
        "scratch_is_local": "Only local storage has local space.",
    }
)
ACTIONS["zone.set"] = "set the zone {object}"
ACTIONS["zone.ended"] = "ended the zone {object}"
ACTIONS["tier.energy_set"] = "set what energy {object} waits for"
ACTIONS["node.storage_set"] = "set the storage of {object}"
