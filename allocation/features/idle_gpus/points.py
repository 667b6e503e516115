"""What idle GPUs add to the core: sentences. The card is in `page`."""

from django.utils.translation import gettext_lazy

from allocation.words.refusals import sentences_add

sentences_add(
    {"none_idle": gettext_lazy("No GPU of %(label)s was measured as idle for the last ten minutes.")}
)
