-- One row: how far this store is. `salt` is null until the first load gives it.
CREATE TABLE meta(
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,
    next_flow INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    steady_ms INTEGER NOT NULL,
    salt INTEGER,
    log_seq INTEGER NOT NULL,
    log_bytes INTEGER NOT NULL
);
INSERT INTO meta VALUES (1, 0, 0, 0, 0, 0, NULL, 0, 0);

-- Columns are what indexes, guards and filters read; `key` is agent, lane, kind and tier; `body` is all the rest.
-- phase: 0 waiting, 1 scheduled, 2 queued, 3 assigned, 4 running, 5 completed, 6 failed, 7 cancelled, 8 rejected.
CREATE TABLE tasks(
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    flow INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    wall_due INTEGER,
    steady_due INTEGER,
    expires_at INTEGER,
    batch BLOB,
    key BLOB NOT NULL,
    body BLOB NOT NULL,
    result BLOB
);
CREATE UNIQUE INDEX tasks_id ON tasks(id);
CREATE INDEX tasks_queued ON tasks(flow, rank, seq) WHERE phase = 2;
-- The oldest task of a flow is the first of rank 0 or the first in here: a task of rank 0 pays for one index only.
CREATE INDEX tasks_ranked ON tasks(flow, seq) WHERE phase = 2 AND rank <> 0;
CREATE INDEX tasks_live ON tasks(phase, seq) WHERE phase < 5;
CREATE INDEX tasks_wall_due ON tasks(wall_due, seq) WHERE wall_due IS NOT NULL;
CREATE INDEX tasks_steady_due ON tasks(steady_due, seq) WHERE steady_due IS NOT NULL;
CREATE INDEX tasks_batch ON tasks(batch, seq) WHERE batch IS NOT NULL;
CREATE INDEX tasks_batch_waiting ON tasks(batch, seq) WHERE phase = 0 AND batch IS NOT NULL;
-- Only ended tasks with a ttl of their own; the rest is purged in submit order.
CREATE INDEX tasks_expires ON tasks(expires_at, seq) WHERE expires_at IS NOT NULL;

-- Never updated, so that a change of a task does not rewrite its payload.
CREATE TABLE specs(seq INTEGER PRIMARY KEY, spec BLOB NOT NULL);

-- The child by its seq: a release frees children in that order, a thousand at a time.
CREATE TABLE edges(parent BLOB NOT NULL, child INTEGER NOT NULL, PRIMARY KEY (parent, child)) WITHOUT ROWID;
CREATE INDEX edges_child ON edges(child);

-- kind: 0 children of an ended parent (ended: 0 well, 1 badly), 1 places of a batch.
CREATE TABLE releases(
    kind INTEGER NOT NULL,
    id BLOB NOT NULL,
    ended INTEGER NOT NULL,
    PRIMARY KEY (kind, id, ended)
) WITHOUT ROWID;

CREATE TABLE flows(id INTEGER PRIMARY KEY, key BLOB NOT NULL, n_queued INTEGER NOT NULL, n_live INTEGER NOT NULL);

CREATE TABLE batches(id BLOB PRIMARY KEY, finished_at INTEGER, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX batches_finished ON batches(finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE batch_specs(id BLOB PRIMARY KEY, spec BLOB NOT NULL) WITHOUT ROWID;

-- `subject` is the task or batch of the first answer; `orphaned` is set when that is purged.
CREATE TABLE keys(
    agent TEXT NOT NULL,
    key TEXT NOT NULL,
    hash INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    subject BLOB NOT NULL,
    orphaned INTEGER NOT NULL DEFAULT 0,
    answer BLOB NOT NULL,
    PRIMARY KEY (agent, key)
) WITHOUT ROWID;
CREATE INDEX keys_subject ON keys(subject);
CREATE INDEX keys_orphaned ON keys(created_at) WHERE orphaned = 1;

CREATE TABLE counts(
    agent TEXT NOT NULL,
    lane TEXT NOT NULL,
    waiting INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    queued INTEGER NOT NULL,
    assigned INTEGER NOT NULL,
    running INTEGER NOT NULL,
    submitted INTEGER NOT NULL,
    started INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    PRIMARY KEY (agent, lane)
) WITHOUT ROWID;

CREATE TABLE rates(name TEXT PRIMARY KEY, state INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE settings(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

-- One row for each commit that something happened in.
CREATE TABLE happenings(seq INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, body BLOB NOT NULL);
