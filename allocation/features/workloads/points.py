"""What workloads add to the core: learnt speeds and sentences."""

from django.utils.translation import gettext_lazy

from allocation.features.workloads.offers import quote_advice_read, workload_names
from allocation.features.workloads.services import work_rates_read
from allocation.points import QUOTE_ADVICE, WORK_RATES, WORKLOADS_KNOWN
from allocation.words.refusals import sentences_add

WORK_RATES.append(work_rates_read)
QUOTE_ADVICE.append(quote_advice_read)
WORKLOADS_KNOWN.append(workload_names)
sentences_add({"workload_name": gettext_lazy("Use letters, digits and hyphens, such as `protein-fold`.")})
