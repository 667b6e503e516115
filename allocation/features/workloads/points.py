"""What workloads add to the core: learnt speeds and sentences."""

from allocation.features.workloads.diversion import diversion_read
from allocation.features.workloads.offers import quote_advice_read, workload_names
from allocation.features.workloads.services import work_rates_read
from allocation.points import DIVERSIONS, QUOTE_ADVICE, WORK_RATES, WORKLOADS_KNOWN
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY

WORK_RATES.append(work_rates_read)
QUOTE_ADVICE.append(quote_advice_read)
WORKLOADS_KNOWN.append(workload_names)
DIVERSIONS.append(diversion_read)
sentences_add(
    {
        "workload_name": "Use letters, digits and hyphens, such as `protein-fold`.",
        "diversion_unknown": "%(project)s has no workload %(name)s. It has: %(names)s.",
        "diversion_leads": "Only leads and admins choose how the classes of a project are ordered.",
    }
)
ACTIONS["diversion.set"] = "set the order of classes in {object}"
NAMED_BY["diversion"] = ("project", "workload")
