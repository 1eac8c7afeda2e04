"""Recorded sessions driven through a context policy, request by request."""
