"""What zones add to the core: sentences and words of the log."""

from django.utils.translation import gettext_lazy

from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS

sentences_add(
    {
        "zone_slug": gettext_lazy("Name the zone by small letters, digits and dashes, such as basel-2."),
        "zone_time_zone": gettext_lazy("There is no such time zone. Name one as Europe/Zurich."),
        "zone_price": gettext_lazy("Give one price or 24, each from 0 to %(most)s with at most four places."),
        "zone_grams": gettext_lazy("Give one whole number or 24, each from 0 to %(most)s."),
        "zone_no_rack": gettext_lazy("There is no rack %(rack)s."),
        "zone_other": gettext_lazy("Rack %(rack)s stands in %(zone)s. Take it out there first."),
        "zone_has_racks": gettext_lazy("Racks stand in it: %(racks)s. Take them out first."),
        "too_many_zones": gettext_lazy("There are %(most)s zones already. End one of them first."),
        "scratch_is_local": gettext_lazy("Only local storage has local space."),
    }
)
ACTIONS["zone.set"] = "set the zone {object}"
ACTIONS["zone.ended"] = "ended the zone {object}"
ACTIONS["node.storage_set"] = "set the storage of {object}"
