//! One suite for every backend: what a loop promises, whichever way it keeps it.
//!
//! A test is a function that takes a [`Loop`]; `suite!` makes one test of it for each way to run a
//! loop. Nothing in here asks which way it is, but for what only a ring has. Files are made and
//! looked at through the way's own disk, since a simulated loop has one. Where no ring is to be
//! had the ring's tests say `skipped: ` and why, and fail in CI.

mod disk;
mod loops;
mod peers;

// The operations, each with what can go wrong with it.
mod boundaries;
mod control;
mod descriptors;
mod files;
mod names;
mod net;
mod streams;
// The loop itself: how much it holds, what waits for what, what is taken where.
mod capacity;
mod chains;
mod entries;
// Random programs against a model.
mod model;

use loops::Loop;

macro_rules! suite {
    ($($module:ident: $($test:ident)*;)*) => {
        suite!(@on uring, Loop::Uring, $($module: $($test)*;)*);
        suite!(@on uring_plain, Loop::UringPlain, $($module: $($test)*;)*);
        suite!(@on uring_by_threads, Loop::UringByThreads, $($module: $($test)*;)*);
        suite!(@on uring_sqpoll, Loop::UringSqpoll, $($module: $($test)*;)*);
        suite!(@on classic, Loop::Classic, $($module: $($test)*;)*);
        suite!(@on simulated, Loop::Simulated, $($module: $($test)*;)*);
        suite!(@on simulated_reordered, Loop::SimulatedReordered, $($module: $($test)*;)*);
    };
    (@on $name:ident, $way:expr, $($module:ident: $($test:ident)*;)*) => {
        mod $name {
            use super::*;
            $(mod $module {
                use super::*;
                $(#[test]
                fn $test() {
                    if $way.is_to_be_had() {
                        super::super::$module::$test($way);
                    }
                })*
            })*
        }
    };
}

suite! {
    files:
        what_was_written_is_read
        a_read_at_the_end_is_short_and_past_it_empty
        vectors_are_read_and_written_in_order
        a_slice_limits_what_is_moved
        a_mapping_is_written_and_what_was_cut_off_is_an_error
        space_is_allocated_and_cut
        a_buffer_comes_back_from_a_failure
        an_unaligned_direct_read_is_refused
        an_aligned_direct_read_works
        a_pool_serves_reads_and_writes
        a_partly_cached_read_is_whole
        an_offset_beyond_the_kernels_is_refused
        a_pipe_has_no_positions
        an_empty_buffer_is_filled_within_its_capacity;
    names:
        a_name_lives_and_dies
        a_directory_is_made_and_removed
        a_directory_has_no_bytes
        names_relative_to_a_directory
        hostile_names
        a_nul_byte_is_refused
        a_missing_file_is_named_in_the_error
        metadata_is_that_of_the_standard_library;
    descriptors:
        the_wrong_direction_is_a_bad_descriptor
        a_descriptor_closes_after_its_last_operation
        a_descriptor_that_is_shared_is_not_closed
        a_close_closes
        an_open_that_nobody_takes_is_closed
        a_file_goes_into_the_table_and_out
        a_table_entry_waits_for_its_operations
        a_registered_file_is_not_closed_under_an_operation
        a_file_is_opened_into_the_table_and_closed_in_it
        another_loops_entry_is_refused
        a_full_table_is_an_error
        a_file_that_a_thread_opened_into_the_table_is_not_inherited
        a_file_in_the_table_is_closed_where_close_is_avoided;
    streams:
        idle_pipes_do_not_keep_files_waiting
        reads_of_one_pipe_share_what_comes
        the_other_end_goes
        a_read_of_a_file_that_only_blocks_is_cancelled
        a_device_with_positions_has_them
        a_read_of_a_nonblocking_pipe_waits
        a_wait_for_what_is_ready_does_not_block
        waiting_costs_nothing;
    net:
        a_connection_is_made_and_accepted
        a_refused_connection_is_an_error
        a_receive_waits_and_is_cancelled
        accepts_of_many
        a_stream_is_received_in_leases
        a_long_stream_is_whole
        a_stream_keeps_its_order_beside_a_run
        the_end_of_a_parked_stream_comes_after_its_data
        buffers_run_out_and_come_back
        a_parked_receive_costs_nothing
        a_parked_receive_is_cancelled
        a_receive_that_is_about_to_be_parked_is_cancelled
        a_cancelled_flood_leaves_nothing_to_do
        a_stopped_receive_loses_nothing
        a_lease_outlives_group_and_loop
        what_was_received_is_sent_as_it_is
        a_registered_socket_is_a_socket
        another_loops_group_is_refused
        a_whole_send_waits_for_its_reader
        a_whole_vectored_send_waits_for_its_reader
        a_send_takes_what_fits
        a_send_that_waits_is_cancelled
        a_quiet_send_is_exact
        a_flood_hides_no_quiet_send
        what_is_ready_hides_no_quiet_send
        a_quiet_send_gives_its_buffer_back
        a_wait_for_quiet_sends_ends
        a_send_without_a_copy_arrives
        a_send_with_a_copy_after_all_ends_with_its_loop
        a_reset_is_an_error_and_no_more
        the_end_comes_after_the_data
        what_came_before_the_receive_is_there
        an_empty_buffer_is_received_into_within_its_capacity
        two_receives_keep_their_order
        datagrams_have_a_sender
        datagrams_are_received_as_they_come
        unix_sockets_are_sockets
        a_socket_is_read_and_written
        a_file_is_no_socket
        a_number_used_again_is_another_socket
        a_thousand_connections
        a_flood_leaves_room_for_others
        a_few_buffers_go_round
        a_dropped_loop_lets_go_of_its_sockets
        work_is_seen_before_it_is_waited_for;
    boundaries:
        what_lies_behind_descriptors_is_received
        what_lies_behind_urgent_data_is_received;
    control:
        a_noop_completes_with_its_tag
        a_timeout_takes_its_time
        a_wait_ends_at_its_deadline
        a_cancel_before_completion
        a_cancel_of_what_is_under_way
        a_cancel_after_completion
        a_timeout_is_cancelled
        a_ticket_of_another_loop_cancels_nothing
        a_single_operation_leaves_others_alone
        a_shutdown_cancels_reads
        a_dropped_loop_finishes_its_writes
        a_signal_does_not_end_a_wait;
    capacity:
        a_full_loop_gives_the_operation_back
        sixty_four_thousand_operations_through_eight_entries
        the_counts_agree
        waiting_for_more_than_is_in_flight_ends;
    chains:
        members_run_in_their_order
        one_wait_is_enough_for_a_chain
        a_failing_member_cancels_the_rest
        a_short_read_cancels_the_rest
        a_chain_over_several_files
        a_member_that_runs_is_cancelled
        a_member_that_waits_is_cancelled_in_its_turn
        a_time_between_two_members
        a_dropped_loop_finishes_a_chain
        a_dropped_loop_cancels_what_waits_in_a_chain
        chains_among_other_operations
        a_chain_beside_a_single_operation
        a_full_loop_gives_a_chain_back
        what_cannot_be_linked_comes_back;
    entries:
        every_opcode_has_an_example
        every_operation_is_pushed
        every_operation_is_run
        every_operation_is_linked
        every_operation_is_submitted
        a_chain_over_a_socket_is_made_in_order;
    model:
        random_programs_agree_with_a_model;
}
