"""What demand adds to the core: its task, and sentences."""

from django.utils.translation import gettext_lazy

from allocation.features.demand.tasks import allocation_demand
from allocation.words.refusals import sentences_add

__all__ = ["allocation_demand"]
sentences_add({"demand_count": gettext_lazy("The class has %(gpus)s GPUs.")})
