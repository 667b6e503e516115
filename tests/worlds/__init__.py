"""Dense random worlds that live for days, with an oracle that shares no code with the solver."""
