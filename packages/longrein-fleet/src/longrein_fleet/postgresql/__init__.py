"""The session log in PostgreSQL: one database for the sessions of many machines."""
