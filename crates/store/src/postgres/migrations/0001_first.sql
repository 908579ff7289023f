-- One row: how far this store is. `salt` is null until the first load gives it. `n_commits` rises with every transaction of
-- the writer: whoever lost the answer to a commit looks whether it did. It, `flows` and `counts` are changed by nearly every
-- commit, in place, and have no index: the writer knows where their rows stand.
CREATE TABLE meta(
    one integer NOT NULL CHECK (one = 1),
    epoch bigint NOT NULL,
    n_commits bigint NOT NULL,
    next_seq bigint NOT NULL,
    next_flow bigint NOT NULL,
    next_delivery bigint NOT NULL,
    wall_ms bigint NOT NULL,
    steady_ms bigint NOT NULL,
    salt bigint,
    log_seq bigint NOT NULL,
    log_bytes bigint NOT NULL,
    settings_version bigint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO meta VALUES (1, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0);

-- A guard that fails ends the transaction inside the database, so that the commit can be sent along with what it commits.
CREATE FUNCTION runyard_expect(n_found bigint, n_wanted bigint, what text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF n_found <> n_wanted THEN
        RAISE EXCEPTION USING ERRCODE = 'RY001', MESSAGE = what;
    END IF;
    RETURN n_found;
END $$;

-- `passed` is null when no row had our epoch. The error's text is the epoch that counts.
CREATE FUNCTION runyard_fence(passed bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF passed IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RY002', MESSAGE = (SELECT epoch FROM meta WHERE one = 1);
    END IF;
    RETURN passed;
END $$;

-- Live tasks. Columns are what indexes, guards and filters read; `key` is agent, lane, kind and tier; `body` is all the rest.
-- phase: 0 waiting, 1 scheduled, 2 queued, 3 assigned, 4 running. The finishing write takes a row out of here: a delete
-- touches no index. Vacuum runs by number, not by share, because the table is as often empty as it is full.
CREATE TABLE tasks(
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    flow bigint NOT NULL,
    wall_due bigint,
    steady_due bigint,
    session bigint,
    line bigint,
    id uuid NOT NULL,
    batch uuid,
    rank integer NOT NULL,
    attempt integer NOT NULL,
    phase smallint NOT NULL,
    key bytea NOT NULL,
    body bytea NOT NULL,
    result bytea
) WITH (fillfactor = 90, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_insert_threshold = 1000000, autovacuum_vacuum_insert_scale_factor = 0,
        autovacuum_analyze_threshold = 100000, autovacuum_analyze_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX tasks_id ON tasks(id);
-- A task that starts in the tick it comes in is in these two alone.
CREATE INDEX tasks_phase ON tasks(phase, seq);
CREATE INDEX tasks_queued ON tasks(flow, rank, seq) WHERE phase = 2;
-- The oldest task of a flow is the first of rank 0 or the first in here.
CREATE INDEX tasks_ranked ON tasks(flow, seq) WHERE phase = 2 AND rank <> 0;
CREATE INDEX tasks_wall_due ON tasks(wall_due, seq) WHERE wall_due IS NOT NULL;
CREATE INDEX tasks_steady_due ON tasks(steady_due, seq) WHERE steady_due IS NOT NULL;
CREATE INDEX tasks_batch ON tasks(batch, seq) WHERE batch IS NOT NULL;
CREATE INDEX tasks_session ON tasks(session, seq) WHERE session IS NOT NULL;
CREATE INDEX tasks_line ON tasks(session, line) WHERE line IS NOT NULL;

-- Ended tasks: 5 completed, 6 failed, 7 cancelled, 8 rejected. A plain table whose retention deletes ranges of seqs: partitions
-- could only be dropped when nothing in them is kept longer (an own ttl, a message that is not delivered), and an id would be
-- looked for in all of them.
CREATE TABLE tasks_done(
    seq bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    flow bigint NOT NULL,
    expires_at bigint,
    session bigint,
    id uuid NOT NULL,
    batch uuid,
    rank integer NOT NULL,
    attempt integer NOT NULL,
    phase smallint NOT NULL,
    key bytea NOT NULL,
    body bytea NOT NULL,
    result bytea
) WITH (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_insert_threshold = 5000000, autovacuum_vacuum_insert_scale_factor = 0,
        autovacuum_analyze_threshold = 1000000, autovacuum_analyze_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX tasks_done_seq ON tasks_done(seq);
CREATE UNIQUE INDEX tasks_done_id ON tasks_done(id);
CREATE INDEX tasks_done_batch ON tasks_done(batch, seq) WHERE batch IS NOT NULL;
CREATE INDEX tasks_done_session ON tasks_done(session, seq) WHERE session IS NOT NULL;
-- Only those with a ttl of their own; the rest is purged in submit order.
CREATE INDEX tasks_done_expires ON tasks_done(expires_at, seq) WHERE expires_at IS NOT NULL;

-- Never updated, so that a change of a task does not rewrite its payload.
CREATE TABLE specs(seq bigint PRIMARY KEY, spec bytea NOT NULL)
    WITH (autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_scale_factor = 0,
          autovacuum_vacuum_insert_threshold = 5000000, autovacuum_vacuum_insert_scale_factor = 0,
          autovacuum_vacuum_cost_delay = 0);

-- Logs of ended attempts, which every node can show.
CREATE TABLE logs(seq bigint NOT NULL, attempt integer NOT NULL, body bytea NOT NULL, PRIMARY KEY (seq, attempt));

-- The child by its seq: a release frees children in that order, a thousand at a time.
CREATE TABLE edges(parent uuid NOT NULL, child bigint NOT NULL, child_id uuid NOT NULL, PRIMARY KEY (parent, child));
CREATE INDEX edges_child ON edges(child);

-- kind: 0 children of an ended parent (ended: 0 well, 1 badly), 1 places of a batch. Of sessions, numbers as eight bytes
-- each, highest first: 2 members to stop (id: session, before, from; ended: why), 3 surplus seated ones (id: session), 4 the
-- first in line (id: session), 5 a line that is too long (id: session), 6 all sessions after one (id: that one). 7 the end of
-- a run (id: task, schedule, run).
CREATE TABLE releases(
    kind smallint NOT NULL,
    ended smallint NOT NULL,
    id bytea NOT NULL,
    PRIMARY KEY (kind, id, ended)
) WITH (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

-- Half of each page is free for the next version of its rows.
CREATE TABLE flows(id bigint NOT NULL, n_queued bigint NOT NULL, n_live bigint NOT NULL, key bytea NOT NULL)
    WITH (fillfactor = 50, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
          autovacuum_vacuum_cost_delay = 0);

CREATE TABLE batches(id uuid PRIMARY KEY, finished_at bigint, body bytea NOT NULL) WITH (fillfactor = 70);
CREATE INDEX batches_finished ON batches(finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE batch_specs(id uuid PRIMARY KEY, spec bytea NOT NULL);

-- `subject` is the task or batch of the first answer; `orphaned` is set when that is purged. A key is any text, and text
-- here knows no zero byte.
CREATE TABLE keys(
    hash bigint NOT NULL,
    created_at bigint NOT NULL,
    subject uuid NOT NULL,
    orphaned boolean NOT NULL DEFAULT false,
    agent text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    answer bytea NOT NULL,
    PRIMARY KEY (agent, key)
);
CREATE INDEX keys_subject ON keys(subject);
CREATE INDEX keys_orphaned ON keys(created_at) WHERE orphaned;

CREATE TABLE counts(
    agent text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL,
    waiting bigint NOT NULL,
    scheduled bigint NOT NULL,
    queued bigint NOT NULL,
    assigned bigint NOT NULL,
    running bigint NOT NULL,
    submitted bigint NOT NULL,
    started bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    rejected bigint NOT NULL,
    expired bigint NOT NULL,
    retried bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE rates(name text COLLATE "C" PRIMARY KEY, state bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE settings(name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);

-- One row for each commit that something happened in.
CREATE TABLE happenings(seq bigint PRIMARY KEY, at_ms bigint NOT NULL, body bytea NOT NULL)
    WITH (autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0,
          autovacuum_vacuum_insert_threshold = 1000000, autovacuum_vacuum_insert_scale_factor = 0,
          autovacuum_vacuum_cost_delay = 0);

-- An ordered stream of tasks with one key. `n_live` and `last_at` are copies of what `body` says, for filters and retention.
CREATE TABLE sessions(
    id bigint PRIMARY KEY,
    last_at bigint NOT NULL,
    n_live integer NOT NULL,
    key bytea NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX sessions_key ON sessions(key);

-- What was merged into a task, beyond its own message, as submitted.
CREATE TABLE messages(
    task_seq bigint NOT NULL,
    n integer NOT NULL,
    body bytea NOT NULL,
    spec bytea NOT NULL,
    PRIMARY KEY (task_seq, n)
);

-- Dropped tasks that a session's next run is told of, by their number in the session's count.
CREATE TABLE session_drops(
    session bigint NOT NULL,
    n bigint NOT NULL,
    task_seq bigint NOT NULL,
    PRIMARY KEY (session, n)
);
CREATE INDEX session_drops_task ON session_drops(task_seq);

-- state: 0 pending, 1 delivered, 2 given up. `next_at` is set exactly while it is pending. `event` and `subject` (a task or
-- a batch) are copies of what `body` says, for filters and retention; `hook` is null for a submitter's own callback.
-- `body` is what happened and never changes; `progress` is all the rest.
CREATE TABLE deliveries(
    id bigint PRIMARY KEY,
    next_at bigint,
    at_ms bigint NOT NULL,
    subject uuid,
    state smallint NOT NULL,
    event smallint NOT NULL,
    hook text COLLATE "C",
    body bytea NOT NULL,
    progress bytea NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deliveries_due ON deliveries(next_at, id) WHERE next_at IS NOT NULL;
CREATE INDEX deliveries_ended ON deliveries(at_ms, id) WHERE next_at IS NULL;
CREATE INDEX deliveries_subject ON deliveries(subject, id) WHERE subject IS NOT NULL;

-- Schedules, what each makes its tasks of, and their runs.
--
-- `due_at` is set exactly while something is to be done about the schedule at a time; it and `enabled` are copies of what
-- `body` says. What its owner wrote changes seldom and may be large, so it stands in a table of its own: a run does not
-- rewrite it. A name is any text, as a key is.
CREATE TABLE schedules(
    id uuid PRIMARY KEY,
    due_at bigint,
    enabled boolean NOT NULL,
    agent text COLLATE "C" NOT NULL,
    name bytea NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX schedules_name ON schedules(name);
CREATE INDEX schedules_due ON schedules(due_at, id) WHERE due_at IS NOT NULL;

CREATE TABLE schedule_bodies(
    id uuid PRIMARY KEY,
    template bytea NOT NULL,
    spec bytea NOT NULL
);

-- They outlive their schedule. cause: 0 its time, 1 caught up with, 2 by hand. `ended_at` is null while its task lives.
CREATE TABLE runs(
    schedule uuid NOT NULL,
    n bigint NOT NULL,
    scheduled_for bigint NOT NULL,
    ended_at bigint,
    cause smallint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (schedule, n)
);
-- No moment of a schedule is fired twice, whoever tries.
CREATE UNIQUE INDEX runs_once ON runs(schedule, scheduled_for) WHERE cause <> 2;
CREATE INDEX runs_ended ON runs(ended_at) WHERE ended_at IS NOT NULL;

-- Workers that registered, until they are removed or have been away for too long. All of it is in `body`: nobody looks for
-- one but by its id, and a start reads them all.
CREATE TABLE workers(id uuid PRIMARY KEY, body bytea NOT NULL) WITH (fillfactor = 70);

-- The nodes on this database, what they prove to each other that they are, and which of them should write.
CREATE TABLE nodes(
    id uuid PRIMARY KEY,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    name text NOT NULL,
    url text NOT NULL,
    version text NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE node_secret(one integer PRIMARY KEY CHECK (one = 1), secret bytea NOT NULL);
-- `writer_pid` and `writer_start` name the connection that took the store over last.
CREATE TABLE lease(
    one integer PRIMARY KEY CHECK (one = 1),
    holder uuid,
    url text NOT NULL,
    until timestamptz NOT NULL,
    writer_pid integer,
    writer_start timestamptz
) WITH (fillfactor = 10);
INSERT INTO lease VALUES (1, NULL, '', '-infinity', NULL, NULL);
