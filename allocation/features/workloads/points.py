"""What workloads add to the core: learnt speeds and sentences."""

from django.utils.translation import gettext_lazy

from allocation.features.workloads.services import work_rates_read
from allocation.points import WORK_RATES
from allocation.words.refusals import sentences_add

WORK_RATES.append(work_rates_read)
sentences_add({"workload_name": gettext_lazy("Use letters, digits and hyphens, such as `protein-fold`.")})
