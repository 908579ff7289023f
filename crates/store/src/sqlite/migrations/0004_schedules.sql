-- Schedules, what each makes its tasks of, and their runs.
--
-- `due_at` is set exactly while something is to be done about the schedule at a time; it and `enabled` are copies of what
-- `body` says. What its owner wrote changes seldom and may be large, so it stands in a table of its own: a run does not
-- rewrite it.
CREATE TABLE schedules(
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    agent TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    due_at INTEGER,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX schedules_name ON schedules(name);
CREATE INDEX schedules_due ON schedules(due_at, id) WHERE due_at IS NOT NULL;

CREATE TABLE schedule_bodies(
    id BLOB PRIMARY KEY,
    template BLOB NOT NULL,
    spec BLOB NOT NULL
);

-- They outlive their schedule. cause: 0 its time, 1 caught up with, 2 by hand. `ended_at` is null while its task lives.
CREATE TABLE runs(
    schedule BLOB NOT NULL,
    n INTEGER NOT NULL,
    scheduled_for INTEGER NOT NULL,
    cause INTEGER NOT NULL,
    ended_at INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY (schedule, n)
);
-- No moment of a schedule is fired twice, whoever tries.
CREATE UNIQUE INDEX runs_once ON runs(schedule, scheduled_for) WHERE cause <> 2;
CREATE INDEX runs_ended ON runs(ended_at) WHERE ended_at IS NOT NULL;
