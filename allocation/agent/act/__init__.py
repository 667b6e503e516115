"""Carries plans out and ends, suspends and resumes programs."""
