"""Connections to Jira over REST."""
