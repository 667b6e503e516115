"""The catalogue of sentences for people: reasons, events, refusals and quotes."""
