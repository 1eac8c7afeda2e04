"""OpenTelemetry traces and metrics of a session, drawn from its events. Off unless the user
names an endpoint.
"""
