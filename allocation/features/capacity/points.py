"""What capacity adds to the core: its task, metrics, sentences and words of the log."""

from allocation.features.capacity.burst import burst_advice
from allocation.features.capacity.metrics import capacity_metrics
from allocation.features.capacity.sprints import sprint_act
from allocation.features.capacity.tasks import capacity_turn_run
from allocation.points import METRICS, QUOTE_ADVICE, SPRINT_ACTS
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

__all__ = ["capacity_turn_run"]
METRICS.append(capacity_metrics)
SPRINT_ACTS.append(sprint_act)
QUOTE_ADVICE.append(burst_advice)
sentences_add(
    {
        "providers_invalid": "The file of providers can't be read: %(error)s.",
        "capacity_until": "Choose an end in the future, at most %(most)s days after the start.",
        "no_offer": "No provider offers %(gpu_class)s.",
        "most_cost_too_little": "The first paid period costs %(least)s. Allow at least so much.",
        "too_many_plans": "The project has %(most)s open plans already. Cancel one first.",
        "sprint_mode": "Choose off, propose or rent.",
        "sprint_issue": "Write the key of an issue, such as GPU-1.",
        "rule_spent": "The rule has used its %(most)s of this month.",
        "backlog_found": "Bookings that would wait too long: %(bookings)s, GPUs: %(gpus)s.",
        "forecast_missing": "The class has no forecast of now.",
        "forecast_hours": "The next %(days)s days have %(hours)s hours.",
        (
            "forecast_found"
        ): "Short hours that are expected in the next %(days)s days: %(hours)s, of up to %(gpus)s GPUs.",
        "burst_advice": "Own GPUs: %(own)s. A rented machine: in %(lead)s, for %(cost)s at most.",
        "burst_too_little": "A machine for it costs %(cost)s, which is more than it may cost.",
        "mix_period": "Choose 1 to %(most)s days.",
        "mix_leads": "Only leads and admins see what mixes of GPUs cost.",
        "mix_class": "Name the class of the mix that is tried.",
        "plan_over": "This plan is over.",
        "capacity_leads": "Only leads and admins decide plans of capacity.",
        "machine_of_plan": "A plan has this machine. Cancel the plan instead.",
        "capacity_stopped": "The ladder of a budget keeps everything of the project from starting.",
    }
)
ACTIONS["capacity_plan.made"] = "planned to rent GPUs for {object}"
ACTIONS["capacity_plan.approved"] = "approved renting GPUs for {object}"
ACTIONS["capacity_plan.cancelled"] = "cancelled renting GPUs for {object}"
ACTIONS["backlog_rule.set"] = "set what the backlog of {object} rents"
NAMED_BY["backlog_rule"] = ("project",)
ACTIONS["forecast_rule.set"] = "set what {object} rents for expected shortages"
NAMED_BY["forecast_rule"] = ("project",)
ACTIONS["sprint_rule.set"] = "set what sprints of {object} rent"
NAMED_BY["sprint_rule"] = ("project",)
ACTIONS["machine.released"] = "gave back the machine {object}"
NAMED_BY["capacity_plan"] = ("project",)
