"""The policy hook of an organisation: its settings, the questions to it, and the calls."""
