"""What idle GPUs add to the core: sentences. The card is in `page`."""

from allocation.words.refusals import sentences_add

sentences_add({"none_idle": "No GPU of %(label)s was measured as idle for the last ten minutes."})
