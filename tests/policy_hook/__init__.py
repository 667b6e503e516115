"""The policy hook of an organisation."""
