"""Tables of the store in PostgreSQL, and the migrations that make them."""

from typing import Any

import psycopg

from longrein_context.events import SessionReadOnly

LOCK_KEY = 7236173
"""Key of the advisory lock under which the tables are made or changed."""
LEASE_LOST = "LR001"
"""SQLSTATE of a write whose writer no longer has the lease."""

MIGRATIONS = (
    f"""
CREATE TABLE roots(root uuid PRIMARY KEY, token bigint NOT NULL, writes bigint NOT NULL,
    owner text NOT NULL, place text NOT NULL, expires timestamptz NOT NULL,
    updated bigint NOT NULL DEFAULT 0, entries bigint NOT NULL DEFAULT 0,
    messages bigint NOT NULL DEFAULT 0,
    one_shot boolean NOT NULL DEFAULT false, original uuid,
    deleted boolean NOT NULL DEFAULT false) WITH (fillfactor = 50);
CREATE INDEX roots_original ON roots(original) WHERE original IS NOT NULL;
CREATE TABLE sessions(root uuid, number bigint, session text NOT NULL, created bigint NOT NULL,
    cwd text NOT NULL, title text NOT NULL, PRIMARY KEY (root, number));
CREATE TABLE entries(root uuid, key bigint, at bigint NOT NULL, version integer NOT NULL,
    crc bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (root, key));
CREATE TABLE inbox(root uuid, id bigint, body bytea NOT NULL, number bigint NOT NULL,
    PRIMARY KEY (root, id));
CREATE TABLE letters(root uuid, id bigserial, body bytea NOT NULL, PRIMARY KEY (root, id));
CREATE TABLE blobs(root uuid, hash bytea, part integer, body bytea NOT NULL,
    PRIMARY KEY (root, hash, part));
CREATE TABLE snapshots(root uuid, part integer, seq bigint NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (root, part));
CREATE FUNCTION hold_lease(of_root uuid, with_token bigint, write bigint, seconds float8,
    last_at bigint, last_seq bigint, is_one_shot boolean, last_message bigint)
    RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE roots SET writes = write, expires = clock_timestamp() + seconds * interval '1 second',
        updated = coalesce(last_at, updated), entries = coalesce(last_seq, entries),
        one_shot = coalesce(is_one_shot, one_shot), messages = greatest(messages, last_message)
    WHERE root = of_root AND token = with_token AND writes = write - 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease is lost' USING ERRCODE = '{LEASE_LOST}';
    END IF;
    RETURN EXISTS (SELECT FROM letters WHERE root = of_root);
END $$;
""",
    "CREATE TABLE shared(name text PRIMARY KEY, body bytea NOT NULL)",
)
"""Statements that lift the schema to version 1, 2, …"""
# roots has a row for each root session: its lease, and what lists of sessions show. roots.writes
# counts the transactions of all its writers; roots.place names the lock file of the owner.
# entries.key and the numbers of sessions are those of `store.database`. A blob of more than
# `PART_BYTES` has several parts. letters holds messages that other processes have left.
# shared holds small values of processes that have no file in common, such as rates of providers.

VERSION = len(MIGRATIONS)


def prepare_schema(connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
    """Make or migrate the tables; one process at a time. Raises `SessionReadOnly` for tables of a
    newer longrein, psycopg.Error.
    """
    version = _version(connection)
    if version < VERSION:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
            connection.execute("CREATE TABLE IF NOT EXISTS longrein_schema(version integer)")
            version = _version(connection)
            for statements in MIGRATIONS[version:]:
                connection.execute(statements)
            if version < VERSION:
                connection.execute("DELETE FROM longrein_schema")
                connection.execute("INSERT INTO longrein_schema VALUES (%s)", (VERSION,))
    if version > VERSION:
        raise SessionReadOnly(
            f"the store was changed by a newer longrein (schema {version}, this one knows "
            f"{VERSION}): upgrade this one"
        )


def _version(connection: "psycopg.Connection[tuple[Any, ...]]") -> int:
    found = connection.execute("SELECT to_regclass('longrein_schema') IS NOT NULL").fetchone()
    if found is None or not found[0]:
        return 0
    row = connection.execute("SELECT version FROM longrein_schema").fetchone()
    return int(row[0]) if row else 0
