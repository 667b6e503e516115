"""What insights add to the core: sentences, and their place in the navigation."""

from django.utils.translation import gettext_lazy

from allocation.words.refusals import sentences_add

sentences_add(
    {
        "kpi_period": gettext_lazy("Choose 1 to 366 days, and at most 100 steps."),
        "kpi_noun": gettext_lazy("Choose %(nouns)s."),
    }
)
