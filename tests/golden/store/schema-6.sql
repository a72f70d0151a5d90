PRAGMA application_id = 1752654434;
PRAGMA user_version = 6;
BEGIN TRANSACTION;
CREATE TABLE clocks (
        conditions TEXT PRIMARY KEY,  -- digest, as in "conditions"
        probe_s    REAL NOT NULL      -- clock that drifts refer to
    ) WITHOUT ROWID
    ;
INSERT INTO "clocks" VALUES('5b678f90d93b4fdc',2.1e-05);
CREATE TABLE conditions (
        fingerprint TEXT PRIMARY KEY,      -- digest of the text in "json"
        json        TEXT NOT NULL          -- object of strings: device fingerprint, runner, cores, ...
    ) WITHOUT ROWID
    ;
INSERT INTO "conditions" VALUES('5b678f90d93b4fdc','{"device":"abc","runner":"native"}');
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
        finished_at     TEXT, purpose TEXT NOT NULL DEFAULT '',
        UNIQUE (workload, target, timing, conditions, build)
    );
INSERT INTO "measurements" VALUES(1,'x3d_i24_m54_o24_k3x3x3_se8_swish@1x24x4x28x28/fp32/auto','local/executorch-1.5.1/t1','{"ci_ratio":0.01,"max_rounds":10,"max_session_s":2.0,"min_rounds":3,"min_samples":10,"min_session_s":0.1,"sentinel_every":10,"timeout_s":60.0,"warmup_s":0.05}','5b678f90d93b4fdc','b1','f00d','ok','',1,0,'2026-11-21T00:00:00.000+00:00','2026-11-21T00:00:00.000+00:00','');
INSERT INTO "measurements" VALUES(2,'x3d_i24_m54_o24_k1x3x3_swish@1x24x4x28x28/fp32/auto','local/executorch-1.5.1/t1','{"ci_ratio":0.01,"max_rounds":10,"max_session_s":2.0,"min_rounds":3,"min_samples":10,"min_session_s":0.1,"sentinel_every":10,"timeout_s":60.0,"warmup_s":0.05}','5b678f90d93b4fdc','b2','','build','the lowering said no',1,0,'2026-11-21T00:00:00.000+00:00','2026-11-21T00:00:00.000+00:00','');
CREATE TABLE runs (
        id         INTEGER PRIMARY KEY,
        target     TEXT NOT NULL,  -- Target.key
        conditions TEXT NOT NULL,  -- digest, as in "conditions"
        before     TEXT NOT NULL,  -- JSON object: the device's state, what of it was held, why the rest was not
        after      TEXT,           -- JSON object: the device's state; NULL where the run did not come to its end
        started_at TEXT NOT NULL,  -- UTC, ISO 8601
        ended_at   TEXT
    );
INSERT INTO "runs" VALUES(1,'local/executorch-1.5.1/t1','5b678f90d93b4fdc','{"conditions":"stock","free":{},"held":{},"load":0.25}','{"load":0.5}','2026-11-21T12:00:00.000+00:00','2026-11-21T12:00:05.000+00:00');
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
    , run INTEGER REFERENCES runs (id), probe_s REAL NOT NULL DEFAULT 0, crowding REAL NOT NULL DEFAULT 0, disturbed INTEGER NOT NULL DEFAULT 0, memory REAL NOT NULL DEFAULT 0, boot TEXT NOT NULL DEFAULT '', boot_s REAL NOT NULL DEFAULT 0);
INSERT INTO "sessions" VALUES(1,1,1,'[1250000,1251000,1249000]',0.0037,0.0038,1,0.004,0.002,2100000000.0,41.5,1.0,'','2026-11-21T00:00:00.000+00:00',1,2.15e-05,1.34,7,6.25,'5d0c7fb0-6c4b-4c39-9d3c-0f4a7f1c2b11',86400.5);
INSERT INTO "sessions" VALUES(2,1,1,'[1260000,1261000,1259000]',0.0037,0.0038,1,0.004,0.002,2100000000.0,41.5,1.0,'','2026-11-21T00:00:00.000+00:00',NULL,0.0,0.0,0,0.0,'',0.0);
INSERT INTO "sessions" VALUES(3,1,1,'[1240000,1241000,1239000]',0.0037,0.0038,1,0.004,0.002,2100000000.0,41.5,1.0,'','2026-11-21T00:00:00.000+00:00',NULL,0.0,0.0,0,0.0,'',0.0);
CREATE INDEX measurements_by_target ON measurements (target, outcome);
CREATE INDEX sessions_by_measurement ON sessions (measurement);
COMMIT;
