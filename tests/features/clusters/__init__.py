"""Tests of observed clusters."""
