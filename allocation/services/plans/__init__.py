"""Writing a plan: what each answer of the solver changes, in transactions that fail whole."""
