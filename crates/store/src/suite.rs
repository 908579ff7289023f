//! What every driver must do, as a library: each rule is a function, named for what it demands. A driver's test file
//! says how to make a store and calls [`store_suite!`](crate::store_suite), which turns each rule into a test.

pub mod fixture;
mod outbox;
mod reads;
mod retention;
mod schedules;
mod sessions;
mod workers;
mod writes;

use crate::store::Store;

pub use outbox::*;
pub use reads::*;
pub use retention::*;
pub use schedules::*;
pub use sessions::*;
pub use workers::*;
pub use writes::*;

/// How a driver's stores are made.
pub trait Harness {
    /// An empty store that shares nothing with any other.
    fn fresh(&mut self) -> Box<dyn Store>;

    /// Closes the store and opens its content again, as a restart does.
    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store>;
}

/// Names each rule once: for tests of their own, and for [`exercise`].
macro_rules! rules {
    ($($rule:ident)*) => {
        /// Every rule in turn, for a caller that has no test harness of its own.
        pub fn exercise(harness: &mut dyn Harness) {
            $($rule(harness);)*
        }

        /// One test for each rule; the argument makes a [`Harness`](crate::suite::Harness).
        #[macro_export]
        macro_rules! store_suite {
            ($make:expr) => {
                $(
                    #[test]
                    fn $rule() {
                        $crate::suite::$rule(&mut $make);
                    }
                )*
            };
        }
    };
}

rules! {
    an_empty_store_loads_empty
    each_load_raises_the_epoch
    the_salt_is_given_once
    clocks_and_numbers_are_kept
    a_task_comes_back_as_it_was_written
    every_state_comes_back_as_it_was_written
    committed_rows_survive_a_reopen
    an_update_with_a_stale_guard_changes_nothing
    an_update_of_no_row_is_a_conflict
    a_second_insert_is_a_conflict
    an_edge_to_no_child_is_a_conflict
    a_second_batch_is_a_conflict
    a_second_key_is_a_conflict
    a_change_of_no_batch_is_a_conflict
    a_failed_commit_leaves_no_trace
    an_old_epoch_is_fenced
    a_result_stays_until_another_comes
    a_new_tier_follows_into_the_row
    counts_add_up
    flows_without_live_tasks_are_not_loaded
    load_gives_held_tasks_and_their_batches
    releases_are_kept_until_removed
    a_release_both_removed_and_added_stays
    rates_and_settings_take_their_last_value
    happenings_are_numbered_by_commit
    happening_numbers_go_on_after_a_reopen
    queued_rows_come_in_rank_then_submit_order
    a_flow_says_whether_there_is_more
    the_oldest_is_found_whatever_its_rank
    only_queued_tasks_are_in_a_flow
    dues_page_in_order_without_gaps
    an_ended_task_is_not_due
    children_are_released_in_submit_order
    an_edge_removed_releases_nobody
    members_are_released_that_wait_for_a_place
    specs_come_in_the_order_asked
    tasks_ahead_are_counted_up_to_the_limit
    fetch_leaves_out_what_does_not_exist
    a_key_comes_back_with_its_first_hash
    a_list_is_newest_first_and_pages_without_gaps
    a_list_shows_only_what_passes_its_filter
    a_list_of_a_batch_shows_its_members
    a_list_by_time_is_bounded_on_both_sides
    a_page_ends_when_it_is_large
    ids_are_listed_as_tasks_are
    a_batch_comes_back_with_its_spec
    purge_keeps_live_tasks
    purge_takes_ended_tasks_after_their_time
    purge_follows_a_tasks_own_ttl
    purge_keeps_a_parent_that_is_being_released
    purge_works_in_chunks_until_done
    purge_passes_over_live_tasks_in_the_smallest_chunks
    purge_takes_edges_along
    purge_keeps_a_batch_as_long_as_a_member
    purge_keeps_a_key_as_long_as_its_task
    purge_keeps_a_young_key_without_its_task
    purge_takes_a_receipt_when_its_time_is_over
    purge_takes_old_happenings
    purge_keeps_the_log_under_its_size
    a_session_comes_back_as_it_was_written
    a_changed_session_replaces_its_row
    a_second_session_is_a_conflict
    a_change_of_no_session_is_a_conflict
    a_second_message_in_one_place_is_a_conflict
    a_second_drop_of_one_number_is_a_conflict
    a_refused_commit_leaves_no_session
    sessions_are_fetched_by_id_and_by_key
    any_text_is_a_sessions_key
    load_gives_the_sessions_of_held_tasks
    releases_of_sessions_are_kept_until_removed
    a_line_is_released_in_its_own_order
    a_member_leaves_the_line_with_its_seat_or_its_end
    a_debounce_is_due_like_a_backoff
    live_members_are_released_to_be_stopped
    seated_members_are_released_that_have_not_started
    a_review_releases_no_task
    sessions_are_reviewed_in_the_order_of_their_ids
    merged_messages_come_in_their_order
    dropped_tasks_tell_all_they_carried
    a_task_shows_the_key_of_its_session
    a_list_of_a_session_shows_its_members
    sessions_are_listed_latest_first
    happenings_tell_of_sessions
    purge_takes_messages_and_drops_with_their_task
    purge_takes_a_session_that_nobody_uses
    purge_keeps_a_session_as_long_as_a_task
    purge_of_sessions_works_in_chunks_until_done
    a_delivery_comes_back_as_it_was_written
    a_second_delivery_of_one_number_is_a_conflict
    a_delivery_that_is_gone_is_not_changed
    deliveries_are_due_in_the_order_of_their_times
    deliveries_are_listed_latest_first
    purge_keeps_what_a_pending_delivery_tells_of
    purge_of_deliveries_works_in_chunks_until_done
    a_schedule_comes_back_as_it_was_written
    a_changed_schedule_keeps_what_its_owner_wrote
    a_name_belongs_to_one_schedule
    a_moment_has_one_run
    a_run_comes_back_as_it_was_written
    runs_outlive_their_schedule_and_page
    schedules_are_due_in_the_order_of_their_times
    schedules_are_listed_latest_first
    the_end_of_a_run_is_kept_until_it_is_worked_off
    happenings_tell_of_schedules
    purge_takes_ended_runs_by_age_and_by_number
    a_worker_comes_back_as_it_was_written
    a_changed_worker_replaces_its_row
    a_removed_worker_is_gone
}
