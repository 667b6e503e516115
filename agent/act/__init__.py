"""Applies plans and ends, suspends and resumes programs."""
