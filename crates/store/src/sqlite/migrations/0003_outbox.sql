-- Messages to the outside world, from the commit that made them until their retention is over.
ALTER TABLE meta ADD COLUMN next_delivery INTEGER NOT NULL DEFAULT 0;

-- state: 0 pending, 1 delivered, 2 given up. `next_at` is set exactly while it is pending. `event` and `subject` (a task or
-- a batch) are copies of what `body` says, for filters and retention; `hook` is null for a submitter's own callback.
-- `body` is what happened and never changes; `progress` is all the rest.
CREATE TABLE deliveries(
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    next_at INTEGER,
    at_ms INTEGER NOT NULL,
    event INTEGER NOT NULL,
    hook TEXT,
    subject BLOB,
    body BLOB NOT NULL,
    progress BLOB NOT NULL
);
CREATE INDEX deliveries_due ON deliveries(next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_ended ON deliveries(at_ms, id) WHERE next_at IS NULL;
CREATE INDEX deliveries_subject ON deliveries(subject, id) WHERE subject IS NOT NULL;
