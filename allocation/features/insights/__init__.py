"""Insights: what the GPUs of an organisation, or of the site, did for their money."""
