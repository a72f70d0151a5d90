"""The schema of the measurement store, as numbered steps. ``PRAGMA user_version`` holds the number of steps applied.

A published step is never edited: a change is a new step at the end, and ``tests/golden/store/`` gets a dump of each
version.
"""

from __future__ import annotations

import sqlite3

# "hwbb" in ASCII: tells our files from any other SQLite file (https://sqlite.org/pragma.html#pragma_application_id).
APPLICATION_ID = 0x68776262

_SCHEMA_1 = (
    """
    CREATE TABLE conditions (
        fingerprint TEXT PRIMARY KEY,      -- digest of the text in "json"
        json        TEXT NOT NULL          -- object of strings: device fingerprint, runner, cores, ...
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE measurements (
        id              INTEGER PRIMARY KEY,
        workload        TEXT NOT NULL,     -- Workload.key
        target          TEXT NOT NULL,     -- Target.key
        timing          TEXT NOT NULL,     -- Timing as canonical JSON
        conditions      TEXT NOT NULL REFERENCES conditions (fingerprint),
        build           TEXT NOT NULL,     -- cache key of the artifact: workload, engine and sources
        artifact_sha256 TEXT NOT NULL,     -- digest of the file that ran; empty while or where nothing was built
        outcome         TEXT,              -- Outcome; NULL while sessions are still to come
        reason          TEXT NOT NULL,
        attempt         INTEGER NOT NULL,  -- a row that was too noisy is tried anew; its old sessions stay
        emulated        INTEGER NOT NULL,
        created_at      TEXT NOT NULL,     -- UTC, ISO 8601
        finished_at     TEXT,
        UNIQUE (workload, target, timing, conditions, build)
    )
    """,
    "CREATE INDEX measurements_by_target ON measurements (target, outcome)",
    """
    CREATE TABLE sessions (
        id                   INTEGER PRIMARY KEY,
        measurement          INTEGER NOT NULL REFERENCES measurements (id),
        attempt              INTEGER NOT NULL,  -- attempt of the measurement that it belongs to
        samples_ns           TEXT NOT NULL,  -- JSON array of whole nanoseconds, in the order taken
        cpu_s                REAL NOT NULL,
        wall_s               REAL NOT NULL,
        involuntary_switches INTEGER NOT NULL,
        load_s               REAL NOT NULL,
        first_s              REAL NOT NULL,
        clock_hz             REAL NOT NULL,
        temperature_celsius  REAL NOT NULL,
        drift                REAL NOT NULL,  -- sentinel now / sentinel at the start
        suspect              TEXT NOT NULL,  -- why the session is doubted; empty = clean
        taken_at             TEXT NOT NULL   -- UTC, ISO 8601
    )
    """,
    "CREATE INDEX sessions_by_measurement ON sessions (measurement)",
)

_SCHEMA_2 = (
    """
    CREATE TABLE runs (
        id         INTEGER PRIMARY KEY,
        target     TEXT NOT NULL,  -- Target.key
        conditions TEXT NOT NULL,  -- digest, as in "conditions"
        before     TEXT NOT NULL,  -- JSON object: the device's state, what of it was held, why the rest was not
        after      TEXT,           -- JSON object: the device's state; NULL where the run did not come to its end
        started_at TEXT NOT NULL,  -- UTC, ISO 8601
        ended_at   TEXT
    )
    """,
    "ALTER TABLE sessions ADD COLUMN run INTEGER REFERENCES runs (id)",  # NULL: of schema 1, or taken without a run
)

_SCHEMA_3 = (
    "ALTER TABLE sessions ADD COLUMN probe_s REAL NOT NULL DEFAULT 0",  # the clock, as a fixed piece of work tells it
    "ALTER TABLE sessions ADD COLUMN crowding REAL NOT NULL DEFAULT 0",  # whether another program shares the core
    "ALTER TABLE sessions ADD COLUMN disturbed INTEGER NOT NULL DEFAULT 0",  # samples thrown away because of that
    """
    CREATE TABLE clocks (
        conditions TEXT PRIMARY KEY,  -- digest, as in "conditions"
        probe_s    REAL NOT NULL      -- clock that drifts refer to
    ) WITHOUT ROWID
    """,
)

_SCHEMA_4 = (
    "ALTER TABLE sessions ADD COLUMN memory REAL NOT NULL DEFAULT 0",  # whether others use last cache and memory
)

_SCHEMA_5 = (
    "ALTER TABLE sessions ADD COLUMN boot TEXT NOT NULL DEFAULT ''",  # start of the host; empty: of before, not known
    "ALTER TABLE sessions ADD COLUMN boot_s REAL NOT NULL DEFAULT 0",  # seconds from it to the session
)

_SCHEMA_6 = (
    "ALTER TABLE measurements ADD COLUMN purpose TEXT NOT NULL DEFAULT ''",  # RowPurpose; empty: for a table
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5, _SCHEMA_6)

LATEST = len(MIGRATIONS)


class ForeignDatabase(Exception):
    """The file is a SQLite database, but not one that this version of hwbench can use."""


class NewerSchema(ForeignDatabase):
    """The file is a measurement store of a newer version of hwbench."""


def version(connection: sqlite3.Connection) -> int:
    """The schema version of an open database; 0 for an empty one.

    Raises:
        ForeignDatabase: Another program's database.
        NewerSchema: This version does not know the schema.
    """
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or number or tables):
        raise ForeignDatabase("it is a SQLite database of another program")
    if number > LATEST:
        raise NewerSchema(f"it has schema {number} and this version of hwbench knows schemas up to {LATEST}")
    return int(number)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings an open database to the latest schema, in one transaction: a crash leaves the old schema or the new one.

    Raises:
        ForeignDatabase, NewerSchema: See ``version``.
    """
    if version(connection) == LATEST:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[version(connection) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {LATEST}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
