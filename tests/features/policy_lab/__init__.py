"""Tests of the policy lab."""
