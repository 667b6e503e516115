"""Plans in the classes of the catalogue: the solver knows those of pools by other names."""

from dataclasses import replace

from allocation.rules.pools import class_of, is_pooled
from solver import Plan


def plan_of_classes(plan: Plan) -> Plan:
    """The same plan with the classes of the catalogue."""
    classes = {
        *(each.gpu_class for each in plan.assigns),
        *(each.gpu_class for each in plan.waits),
        *(each.gpu_class for each in plan.moves),
    }
    if not any(map(is_pooled, classes)):
        return plan
    return replace(
        plan,
        assigns=tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in plan.assigns),
        waits=tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in plan.waits),
        moves=tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in plan.moves),
    )
