"""The sentences of refusals of engines' hosts."""

from allocation.words.refusals import sentences_add

sentences_add({"no_hosts_named": "Name hosts, or a kind of which all hosts join that wait."})
