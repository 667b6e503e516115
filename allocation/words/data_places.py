"""The sentence on the data that a booking names: which of its nodes have it, and what follows."""

from collections.abc import Mapping

from django.utils.translation import gettext as _

from solver.reasons.reason import Fact


def data_place(facts: Mapping[str, Fact]) -> str:
    """`imagenet is on n1, which was preferred for it.`"""
    said = {name: _listed(facts, name) for name in ("data", "has", "lacks", "elsewhere_on")}
    if not said["lacks"]:
        return _("%(data)s: on %(has)s, which was preferred for that.") % said
    if said["has"]:
        text = _("%(data)s: on %(has)s, but not on %(lacks)s.")
    elif said["elsewhere_on"]:
        text = _(
            "%(data)s: not on %(lacks)s. %(elsewhere_on)s has it, but no GPUs for this booking that are as "
            "early and as close together."
        )
    else:
        text = _("%(data)s: on no node.")
    fetched = _("What is missing is fetched before the start where the site has set that up.")
    return f"{text % said} {fetched}"


def _listed(facts: Mapping[str, Fact], name: str) -> str:
    return str(facts.get(name, "")).replace(",", ", ")
