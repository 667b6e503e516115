"""What zones add to the core: sentences and words of the log."""

from django.utils.translation import gettext_lazy

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
        "zone_word": gettext_lazy(
            "“%(word)s” has a meaning in request lines, or is another zone: a line that names it would say"
            " something else. “%(works)s” works."
        ),
        "zone_slug": gettext_lazy("Name the zone by small letters, digits and dashes, such as basel-2."),
        "zone_time_zone": gettext_lazy("There is no such time zone. Name one as Europe/Zurich."),
        "zone_price": gettext_lazy("Give one price or 24, each from 0 to %(most)s with at most four places."),
        "zone_grams": gettext_lazy("Give one whole number or 24, each from 0 to %(most)s."),
        "zone_no_rack": gettext_lazy("There is no rack %(rack)s."),
        "zone_other": gettext_lazy("Rack %(rack)s stands in %(zone)s. Take it out there first."),
        "zone_has_racks": gettext_lazy("Racks stand in it: %(racks)s. Take them out first."),
        "too_many_zones": gettext_lazy("There are %(most)s zones already. End one of them first."),
        "energy_hours": gettext_lazy("Let it wait for 1 to %(most)s hours."),
        "scratch_is_local": gettext_lazy("Only local storage has local space."),
    }
)
ACTIONS["zone.set"] = "set the zone {object}"
ACTIONS["zone.ended"] = "ended the zone {object}"
ACTIONS["tier.energy_set"] = "set what energy {object} waits for"
ACTIONS["node.storage_set"] = "set the storage of {object}"
