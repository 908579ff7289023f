//! The rules of scheduling, one test for each: submit, move the clock, read what came out. No threads, no sleeps, no
//! files: the real tick loop over the store in memory, with a worker that does exactly what a test tells it to.

mod rules {
    mod bed;

    mod admission;
    mod aging;
    mod batches;
    mod cancel;
    mod changes;
    mod dependencies;
    mod explain;
    mod fairness;
    mod gates;
    mod idempotency;
    mod lanes;
    mod once;
    mod placement;
    mod placement_score;
    mod preemption;
    mod reload;
    mod restart;
    mod retry;
    mod same_tick;
    mod schedules;
    mod sessions_full;
    mod sessions_input;
    mod sessions_line;
    mod sessions_merge;
    mod sessions_modes;
    mod sessions_restart;
    mod sessions_settings;
    mod sessions_stop;
    mod states;
    mod times;
    mod webhooks;
    mod windows;
    mod workers;
    mod workers_seen;
}
