"""Pages of connections to Jira."""
