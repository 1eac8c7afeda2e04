"""Tests of the fleet extension."""
