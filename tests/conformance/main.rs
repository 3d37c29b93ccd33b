//! The behaviour of limiters, tested on every store: in memory, on a Redis server, on a Redis
//! cluster.

#[path = "../support/bad_state.rs"]
mod bad_state;
#[path = "../support/by_hand.rs"]
mod by_hand;
#[macro_use]
mod every_store;
#[path = "../support/every_policy.rs"]
mod every_policy;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/mod.rs"]
mod support;

mod at_once;
mod available;
mod bounded_waiting;
mod changed_settings;
mod closing;
mod corrupt_keys;
mod decision;
mod existing_scripts;
mod fixed_window;
mod fixture;
mod freed_elsewhere;
mod gcra;
mod hold;
mod joint;
mod key_types;
mod keyed;
mod leaky_bucket;
mod moved_calls;
mod name;
mod on_event;
mod peek;
mod peer;
mod penalty;
mod penalty_token_bucket;
mod per_client;
mod quota_bucket;
mod rate;
mod rate_window;
mod refund;
mod release;
mod reserve;
mod reset;
mod retry_after;
mod rules;
mod rules_histories;
mod rules_of_parts;
mod runtimes;
mod settle;
mod sliding_window_counter;
mod sliding_window_log;
#[path = "../support/stopped_time.rs"]
mod stopped_time;
mod time_to_live;
mod timed;
mod token_bucket;
#[path = "../support/told.rs"]
mod told;
mod turn;
mod untrusted_keys;
mod up_to;
mod update_rate;
mod waiting;
mod waiting_for_a_key;
mod with_rate;
mod worked_example;
mod worker;
mod wrong_clock;

on_every_store! {
    with_their_own_runtimes {
        runtimes {
            others_proceed_where_the_runtime_that_connected_is_idle,
            others_proceed_while_a_call_is_left_unpolled_on_an_idle_runtime,
            what_is_dropped_on_an_idle_runtime_is_given_back_unless_it_was_granted,
            a_policy_decides_while_another_call_on_its_target_is_left_unpolled,
            waiters_are_served_behind_one_that_is_left_unpolled_on_an_idle_runtime,
            a_waiter_goes_on_where_another_runtime_polls_it,
            a_timeout_passes_on_the_runtime_that_polls,
            a_call_goes_on_when_another_runtime_polls_it,
            a_policys_call_ends_when_another_runtime_polls_it,
            a_debt_is_taken_once_when_another_runtime_polls_its_call,
            outside_of_a_runtime_a_call_that_would_wait_is_an_error,
            outside_of_a_runtime_a_grant_is_settled_in_memory,
            a_call_that_began_on_a_runtime_is_an_error_when_it_is_polled_outside,
            on_the_handle_of_a_runtime_that_has_shut_down_a_waiter_does_not_spin,
        }
        moved_calls {
            an_unshared_call_ends_when_another_runtime_polls_it,
            a_request_has_its_turn_where_another_runtime_polls_it,
            outside_of_a_runtime_a_request_that_has_to_wait_is_an_error,
        }
    }
    everywhere {
        bounded_waiting {
            once_as_many_wait_as_may_the_next_one_is_refused_at_once,
            a_waiter_that_leaves_makes_room_at_once_and_a_refused_one_takes_none,
            a_timed_wait_is_refused_at_once_if_its_permits_come_later,
            an_estimate_counts_those_in_front_but_not_those_who_give_up_first,
            more_permits_than_the_rate_are_an_error_whatever_the_last_answer,
            a_timed_wait_with_a_rate_of_its_own_is_refused_by_the_stored_rate,
            a_rate_set_by_keyed_or_joint_requests_counts_for_the_next_timed_wait,
            the_interval_of_a_rate_that_was_replaced_does_not_count,
        }
        closing {
            a_closed_client_refuses_all_requests_of_all_handles_and_ends_all_waits,
            a_client_is_healthy_while_its_servers_answer,
        }
        on_event {
            each_request_of_a_limiter_is_reported_once_with_its_result,
            requests_by_key_are_reported_by_prefix_and_never_by_key,
            settling_a_grant_is_not_reported_as_another_request,
            a_joint_decision_is_reported_once_with_each_of_its_limiters,
            a_request_whose_future_is_dropped_is_reported_as_cancelled,
            a_handler_that_panics_harms_no_request,
            a_handler_may_use_the_client_and_its_limiters,
        }
        wrong_clock {
            what_is_further_ahead_than_the_window_does_not_count,
            what_is_less_far_ahead_counts,
        }
        freed_elsewhere {
            a_waiter_is_served_as_another_client_releases_permits,
            a_waiter_is_served_as_another_client_gives_a_grant_back,
            a_waiter_is_served_as_another_client_raises_the_rate,
            a_waiter_is_served_as_another_client_resets_the_rate,
            a_waiter_learns_at_once_that_another_client_deleted_the_limiter,
            a_waiter_learns_at_once_that_another_client_made_the_limiter_expire,
            a_waiter_that_needs_more_than_came_free_waits_for_the_rest,
        }
        worked_example {
            the_worked_example_is_answered_to_the_permit_and_the_millisecond,
            the_worked_example_holds_for_three_workers_with_their_own_clients,
        }
        decision {
            a_grant_states_its_permits_the_limit_and_what_remains,
            a_denial_states_the_limit_what_remains_and_when_the_oldest_is_back,
            a_denial_takes_nothing,
            more_permits_than_the_rate_are_an_error_and_take_nothing,
            a_limiter_without_a_rate_is_an_error_for_all_that_needs_one,
            rates_up_to_2_to_the_53_count_exactly,
        }
        retry_after {
            a_request_fits_when_as_many_grants_are_back_as_it_needs,
            a_request_beside_some_permits_that_are_left_needs_only_the_rest,
            under_a_lowered_rate_a_request_fits_when_less_than_the_rate_is_in_use,
            beside_a_hold_a_request_fits_when_it_has_ended,
            each_request_of_a_shared_call_gets_its_own_time,
            what_a_call_grants_to_one_request_delays_the_others_of_it,
        }
        available {
            a_rate_limiter_has_more_when_its_oldest_permits_are_back,
            each_policy_has_more_when_it_says_and_not_before,
            a_limit_that_was_lowered_has_more_when_less_than_it_is_in_use,
            a_fixed_window_has_more_when_it_ends,
            a_target_that_is_locked_out_has_nothing_until_the_lock_ends,
            limiters_that_decide_together_say_what_each_would_alone,
        }
        reset {
            a_rate_limiter_is_reset_when_its_newest_permits_are_back,
            grants_that_a_clock_ahead_scored_count_as_made_now,
            a_rate_per_client_states_the_reset_of_its_own_client,
            a_keys_limiter_is_reset_as_any_other_and_states_the_rate_it_got,
            each_policy_has_its_whole_limit_again_after_the_reset_and_not_before,
            the_first_request_of_each_policy_is_reset_within_the_window,
            what_a_lowered_limit_leaves_in_use_may_take_longer_than_its_window,
            a_fixed_window_is_reset_when_it_ends,
            a_limiter_not_charged_because_another_denies_keeps_its_reset,
        }
        rate_window {
            a_permit_is_back_exactly_an_interval_after_it_was_taken,
            of_two_in_five_seconds_taken_at_0_4_and_5_05_the_next_is_denied,
            ten_in_five_seconds_are_ten_again_six_seconds_after_one_was_taken,
            with_no_timeout_five_are_granted_five_denied_and_again_a_second_later,
            in_each_of_three_rounds_ten_are_granted_and_ten_denied,
            no_second_holds_more_than_eighteen_of_a_thousand_grants_to_8_clients,
            each_tenth_grant_to_eight_clients_is_a_second_after_the_tenth_before,
        }
        rate {
            the_config_is_what_was_set_and_set_rate_changes_it,
            a_limiter_that_was_never_set_has_no_config,
            a_second_try_set_rate_is_false_and_changes_nothing,
            a_rate_changed_from_10_to_20_leaves_9_then_19_for_all_clients,
            a_rate_changed_from_10_to_20_leaves_9_then_19_for_each_client,
            set_rate_forgets_what_is_in_use_even_if_the_rate_stays_the_same,
            set_rate_with_creates_a_missing_limiter,
            set_rate_with_kept_state_leaves_17_of_20_where_3_were_used,
            set_rate_with_reset_state_leaves_all_20_where_3_were_used,
        }
        update_rate {
            updating_a_limiter_that_is_missing_is_false_and_makes_none,
            updating_to_the_same_rate_with_kept_state_leaves_8_of_10_after_2,
            updating_10_with_4_used_to_20_leaves_16,
            updating_10_with_3_used_to_5_leaves_2,
            updating_10_with_8_used_to_5_leaves_0_and_not_less,
            permits_come_free_once_less_than_a_lowered_rate_is_in_use,
            updating_after_the_window_has_passed_leaves_all_10,
            updating_with_reset_state_leaves_the_whole_new_rate,
            updating_to_another_type_clears_what_was_in_use,
            a_keep_alive_below_the_interval_is_an_error_and_changes_nothing,
            a_keep_alive_below_the_interval_is_an_error_for_a_missing_limiter_too,
            updating_to_a_shorter_interval_drops_what_it_makes_old,
            updating_to_a_longer_interval_keeps_what_is_in_use_for_longer,
            updating_per_client_keeps_what_this_client_uses_and_leaves_it_17,
            updating_with_a_keep_alive_stores_it_and_without_one_removes_it,
        }
        release {
            what_was_taken_and_released_can_be_taken_at_once,
            releasing_more_than_is_in_use_does_not_lift_the_permits_above_the_rate,
            releasing_0_is_an_error_and_changes_nothing,
            what_was_released_is_not_there_twice_once_its_window_has_passed,
            released_permits_come_out_of_the_oldest_grants,
            a_release_partly_of_expired_permits_gives_these_back_only_once,
            a_release_by_another_client_counts_for_all,
            all_that_has_expired_is_available_however_many_grants_it_was,
        }
        hold {
            nobody_is_granted_a_permit_until_the_time_has_passed,
            what_was_in_use_before_a_hold_counts_after_it,
            of_several_holds_the_one_that_ends_last_counts,
            a_release_and_a_raised_rate_do_not_end_a_hold,
            a_reset_ends_a_hold,
            those_who_wait_are_served_in_order_when_a_hold_ends,
            a_limiter_that_expires_ends_its_hold,
            a_handle_with_a_rate_creates_the_limiter_that_it_holds,
            a_hold_of_no_time_or_of_too_large_a_rate_is_an_error,
        }
        worker {
            a_job_is_repeated_until_it_is_marked_as_done,
            a_worker_waits_for_its_job_without_a_permit,
            a_closed_client_ends_its_workers_which_keep_their_jobs,
            a_cancelled_wait_keeps_the_job_and_no_permit,
            a_job_to_be_done_again_later_holds_the_limiter_for_all,
            a_job_to_be_done_again_at_once_is_the_next_one,
        }
        reserve {
            available_permits_are_usable_at_once_and_for_an_interval,
            a_reservation_is_usable_when_enough_is_back_and_others_wait_for_it,
            reservations_are_usable_in_the_order_in_which_they_were_made,
            a_reservation_that_is_not_used_counts_for_an_interval_after_its_end,
            a_reservation_shrunk_cancelled_or_dropped_gives_its_permits_back,
            a_reservation_goes_back_when_its_caller_stops_waiting,
            a_reservation_that_is_used_too_late_fails_and_gives_its_permits_back,
            a_reservation_counts_from_its_use_though_the_machine_was_suspended,
            a_reservation_ends_when_the_clock_is_set_back,
            a_closed_client_ends_the_wait_for_a_reservation,
            bad_arguments_and_a_limiter_that_expires_too_soon_are_errors,
            a_handle_with_a_rate_creates_the_limiter_for_a_reservation,
            a_reservation_outlives_a_change_of_the_rate,
            a_waiter_waits_for_what_a_reservation_leaves,
        }
        at_once {
            limiters_in_memory_decide_at_once_and_redis_is_not_asked,
            rules_in_memory_decide_at_once_if_none_gives_turns,
            a_limiter_that_gives_turns_does_not_decide_at_once,
        }
        up_to {
            as_many_permits_are_taken_as_there_are_and_none_twice,
            what_was_taken_can_be_given_back_as_a_whole,
            a_policy_is_charged_as_much_as_it_has_left,
        }
        refund {
            a_refunded_grant_is_back_at_once_and_leaves_the_others_as_they_are,
            a_refunded_grant_is_not_there_twice_once_its_window_has_passed,
            a_grant_whose_window_has_passed_gives_nothing_back,
            a_grant_of_which_part_was_released_gives_back_the_rest_only,
            a_grant_that_was_released_as_a_whole_gives_nothing_back,
            a_grant_from_before_a_reset_of_the_state_gives_nothing_back,
            a_grant_outlives_a_change_of_the_rate_that_keeps_the_state,
            a_refund_does_not_lift_the_permits_above_a_rate_that_was_lowered,
            a_grant_can_be_refunded_through_another_handle_and_another_client,
            of_many_grants_of_the_same_millisecond_each_is_found_by_itself,
            of_a_grant_and_its_clones_one_is_given_back,
            of_a_part_of_a_grant_no_more_than_the_part_is_given_back,
            a_grant_of_another_key_gives_nothing_back,
        }
        settle {
            what_was_not_used_goes_back_and_the_rest_stays_in_use,
            what_was_used_beyond_a_grant_is_taken_and_later_requests_wait,
            more_than_the_rate_may_have_been_used,
            of_a_grant_and_its_clones_one_is_settled_once,
            a_grant_of_any_limiter_and_its_clones_are_spent_once,
            an_estimate_whose_window_has_passed_can_be_settled,
            settling_by_a_handle_with_a_rate_creates_a_missing_limiter,
            settling_leaves_the_settings_that_a_limiter_got_since_the_grant,
            a_waiter_waits_until_enough_has_come_back,
            what_those_who_wait_are_granted_can_be_settled,
            only_what_was_used_beyond_a_grant_counts_for_an_expired_key,
            settling_for_more_than_is_left_locks_nobody_out,
            settling_waits_for_no_turn,
            a_limiter_of_any_kind_gives_back_and_takes_what_it_has,
            each_policy_gives_back_once_what_a_grant_has_charged,
            a_bucket_gives_back_what_has_not_flowed_in_since,
            a_window_gives_back_what_it_counts_while_it_lasts,
            what_was_used_beyond_one_calls_largest_cost_is_taken_in_parts,
        }
        per_client {
            asking_for_20_of_1_is_an_error_and_1_is_granted_afterwards,
            each_client_has_the_whole_rate_for_itself,
            release_and_refund_touch_only_the_callers_permits,
            set_rate_resets_the_caller_and_others_keep_what_they_use,
            deleting_takes_the_limiter_from_all_and_the_use_of_the_caller_only,
            a_client_that_keeps_its_id_over_a_restart_keeps_its_permits,
            clients_without_an_id_of_their_own_get_different_ones,
        }
        time_to_live {
            nothing_is_there_to_delete_before_the_rate_is_set_and_after_deleting,
            a_missing_limiter_has_no_time_to_live_to_set,
            a_limiter_lives_for_ever_until_expire_and_again_after_clear_expire,
            a_limiter_that_expires_at_a_time_that_has_passed_is_gone_at_once,
            a_time_to_live_of_zero_deletes_the_limiter,
            a_time_to_live_of_zero_deletes_the_limiter_only_if_its_condition_holds,
            times_before_1970_or_below_one_ms_are_errors_and_change_nothing,
            expire_if_set_and_if_not_set_ask_whether_there_is_a_time_to_live,
            expire_if_greater_and_if_less_compare_with_the_time_to_live,
            a_keep_alive_is_the_life_of_a_limiter_from_the_start,
            a_second_try_set_rate_does_not_renew_the_life,
            a_limiter_that_expires_during_a_request_leaves_nothing_to_the_next,
        }
        name {
            a_mapped_name_is_the_name_in_the_store,
            names_that_a_mapper_makes_the_same_are_the_same_limiter,
            limiters_of_different_names_know_nothing_of_each_other,
            a_rate_limiter_can_be_used_as_any_limiter,
        }
        keyed {
            a_part_of_a_joint_decision_has_a_rate_of_its_own,
            three_in_ten_seconds_are_granted_and_the_fourth_only_after_them,
            each_key_has_the_whole_rate_for_itself,
            a_decision_states_limit_remaining_retry_after_and_reset,
            the_limiter_of_a_key_is_an_rratelimiter_that_all_can_use,
            a_grant_can_be_refunded_at_the_limiter_of_its_key,
            a_rate_as_a_policy_decides_by_the_limiter_with_the_keys_name,
            creating_a_limiter_clears_what_an_earlier_one_left,
            each_key_has_a_changed_rate_from_its_next_request_and_keeps_its_use,
            a_shorter_interval_gives_back_what_has_expired_by_it,
            a_change_of_the_type_forgets_what_is_in_use,
            an_invalid_rate_is_refused_and_the_old_one_stays,
            a_key_may_have_a_rate_of_its_own,
            a_cost_of_0_or_above_the_rate_is_an_error_and_creates_nothing,
            a_limiter_lives_an_interval_after_its_last_request_by_default,
            a_keep_alive_that_the_rate_does_not_name_is_left_as_it_is,
        }
        joint {
            limiters_without_a_common_hash_tag_all_grant_or_none_is_charged,
            each_limiter_that_denies_sets_its_penalty_wherever_its_keys_lie,
            decisions_of_the_same_time_are_made_in_the_order_of_their_requests,
            what_all_grant_is_charged_to_each,
            what_one_denies_is_charged_to_none,
            the_deciding_limiter_has_the_longest_wait_or_the_least_left,
            an_rratelimiter_in_a_joint_decision_has_its_sliding_window,
            a_grant_of_an_rratelimiter_in_a_joint_decision_can_be_refunded,
            a_limiter_without_a_rate_or_a_cost_above_the_limit_charges_nobody,
            an_error_names_the_first_limiter_that_cannot_decide,
            every_grant_of_a_joint_decision_is_given_back,
            charges_that_cannot_be_decided_together_are_refused,
            more_limiters_or_members_than_a_call_may_touch_are_refused,
        }
        rules {
            an_error_of_a_cost_above_a_limit_names_the_rule,
            a_plan_by_the_month_keeps_what_was_used_when_it_changes_in_its_middle,
            a_rule_counts_only_requests_that_end_as_it_says,
            an_rratelimiter_and_a_rule_in_shadow_mode_count_only_some_too,
            a_rule_that_gives_nothing_back_counts_all,
            all_rules_that_apply_grant_or_none_is_charged,
            a_request_that_no_rule_applies_to_is_granted,
            each_combination_of_values_is_a_target_of_its_own,
            a_request_costs_what_its_rule_says_and_a_denial_has_the_decision,
            a_rule_does_not_apply_to_a_request_that_costs_it_nothing,
            a_plan_that_blocks_does_so_whatever_a_request_costs,
            rules_are_replaced_while_requests_come_in,
            a_verdict_has_the_decision_of_each_limiter_by_its_name,
            an_rratelimiter_is_part_of_a_rule_as_any_other,
            rules_that_cannot_decide_together_are_refused_when_made,
            a_rule_in_shadow_mode_is_charged_and_reported_and_not_enforced,
            rules_are_set_in_shadow_mode_while_requests_come_in,
            a_plan_has_a_limiter_of_its_own_or_allows_or_blocks,
            a_rule_with_another_algorithm_starts_anew_and_says_so,
            limiters_that_may_have_keys_of_another_algorithm_are_refused,
            rules_may_be_replaced_as_often_as_one_likes,
            replaced_rules_stay_in_shadow_mode,
            each_limiter_of_a_rule_counts_only_what_the_rule_does,
            what_a_request_was_charged_in_shadow_mode_goes_back_later_too,
            a_replacement_names_each_rule_that_has_changed,
            an_empty_cost_is_1_and_one_that_is_no_number_is_refused,
            shadow_rules_are_charged_settled_and_given_back_as_others,
            events_name_the_rules_that_refuse_a_request,
            the_plan_of_a_key_takes_precedence_over_that_of_a_request,
            a_rule_applies_where_all_of_its_conditions_match,
            if_a_rule_applies_instead_of_another_the_other_does_not,
            a_rule_that_does_not_count_a_request_replaces_no_other,
            requests_that_one_limit_denies_are_not_charged_to_another,
            rules_that_swap_their_prefixes_go_on_deciding,
            what_rules_have_charged_is_settled_or_given_back_once,
            rules_per_user_and_per_address_need_no_common_hash_tag,
        }
        rules_histories {
            random_histories_of_rules_charge_what_an_oracle_says,
        }
        rules_of_parts {
            all_parts_of_a_request_are_granted_or_none_is_charged,
            limiters_say_which_part_of_a_request_they_decided_on,
            a_part_that_is_blocked_charges_no_other,
            parts_are_peeked_and_nothing_is_charged,
            each_part_of_a_request_is_settled_by_its_own_cost,
            parts_that_were_charged_together_are_settled_by_the_sum_of_their_costs,
            parts_that_count_for_one_target_are_charged_together,
            parts_of_several_plans_are_charged_to_the_limiters_of_these,
            a_rule_without_a_limit_reports_a_request_once,
            a_request_whose_turn_would_be_too_late_is_not_charged,
            there_may_be_more_rules_than_decide_a_request,
            more_parts_than_are_decided_together_are_refused,
            a_release_gives_back_to_each_rratelimiter_that_applies,
            a_release_that_one_limiter_refuses_reaches_the_others,
            a_release_with_a_wrong_cost_of_one_rule_reaches_the_others,
            a_settle_that_one_limiter_refuses_is_an_error_and_reaches_the_other,
            a_cost_that_is_no_number_refuses_all_parts_of_one_target,
        }
        fixed_window {
            of_101_requests_in_a_minute_the_last_is_denied_for_the_rest_of_it,
            the_next_window_begins_when_the_denial_said,
            what_would_exceed_the_limit_is_denied_and_not_counted,
            an_aligned_window_ends_with_the_largest_unit_that_divides_it,
            the_current_window_ends_as_before_and_the_next_has_the_new_length,
            processes_that_learn_a_new_length_in_their_own_way_keep_the_limit,
            a_window_of_the_calendar_ends_with_its_unit_at_its_offset,
            a_plan_that_changes_in_the_middle_of_a_month_keeps_what_was_used,
            a_changed_limit_applies_to_what_the_window_has_counted,
            a_penalty_is_over_when_the_denial_said,
        }
        sliding_window_log {
            a_request_counts_for_a_window_and_not_a_millisecond_longer,
            a_request_of_cost_n_counts_n,
            requests_of_the_same_millisecond_and_cost_each_count,
            what_is_denied_is_not_logged,
            no_two_clients_pass_between_the_count_and_the_entry,
            a_changed_window_applies_at_once_to_what_is_logged,
            a_request_of_more_units_than_a_call_writes_is_refused,
        }
        sliding_window_counter {
            the_current_period_and_those_before_it_in_the_window_count,
            a_time_between_two_periods_belongs_to_the_one_that_ends,
            with_one_period_it_is_a_fixed_window,
            an_aligned_first_period_begins_with_the_unit,
            what_is_denied_is_not_counted,
            no_time_of_a_window_less_a_period_holds_more_than_the_limit,
            of_many_clients_at_once_no_more_pass_than_the_limit,
            a_changed_window_of_the_same_periods_applies_at_once,
            after_a_change_of_the_periods_what_was_counted_still_counts,
            clients_with_other_periods_count_each_others_counters,
        }
        token_bucket {
            a_new_bucket_is_full_and_fills_up_to_its_capacity_only,
            only_whole_tokens_come_in_and_a_denial_states_when,
            however_often_it_is_asked_the_long_run_rate_is_exact,
            a_grant_states_what_remains_and_when_the_bucket_is_full,
            a_changed_capacity_caps_at_once_and_a_changed_rate_holds_from_then_on,
        }
        quota_bucket {
            of_100_with_30_a_minute_one_leaves_99,
            of_10_a_minute_two_fives_are_granted_and_a_third_is_denied,
            the_time_of_a_tokens_fraction_goes_on_counting,
            tokens_that_take_fractions_of_seconds_come_in_at_the_exact_rate,
            a_denied_request_is_granted_after_its_retry_time_and_not_before,
            a_bucket_is_never_fuller_than_its_capacity,
            a_clock_that_goes_back_takes_and_gives_nothing,
            a_smaller_capacity_caps_what_is_left_at_once,
            another_quota_and_period_count_from_the_next_request_on,
            a_quantity_above_the_capacity_is_an_error_and_takes_nothing,
        }
        leaky_bucket {
            cost_beyond_a_units_quantity_waits_and_what_does_not_fit_is_denied,
            with_each_whole_unit_a_quantity_flows_out,
            in_the_long_run_the_pace_is_the_quantity_per_unit,
            a_targets_first_request_goes_on_at_once_and_the_next_waits_for_it,
            after_idle_units_the_capacity_is_checked_also_for_a_large_cost,
            with_something_left_after_idle_units_the_capacity_is_checked_too,
            aligned_to_the_clock_the_first_unit_is_the_current_one,
            what_a_new_policy_finds_in_the_bucket_flows_out_at_the_new_pace,
            an_idle_bucket_expires_when_it_has_flowed_out,
        }
        turn {
            a_check_returns_when_its_request_may_proceed,
            a_check_without_waiting_returns_the_delay_at_once,
            a_request_dropped_before_its_turn_leaves_its_place_taken,
            a_joint_check_returns_when_the_last_of_its_turns_has_come,
            a_joint_check_dropped_before_its_turn_gives_permits_back,
            rules_grant_a_request_when_it_may_proceed,
            the_wait_for_a_turn_is_part_of_the_reported_time,
            a_request_that_was_granted_has_its_turn_though_its_client_is_closed,
        }
        gcra {
            a_burst_is_granted_at_once_and_comes_back_at_the_rate,
            a_decision_states_the_burst_what_is_left_and_when_all_is_back,
            no_more_than_the_rate_comes_back_however_it_divides_the_period,
            what_was_taken_still_counts_after_the_numbers_change,
            a_new_policy_of_each_unit_has_its_emission_interval,
        }
        penalty_token_bucket {
            a_bucket_starts_full_and_tokens_come_in_when_a_unit_is_over,
            in_the_long_run_the_tokens_are_the_quantity_per_unit,
            aligned_to_the_clock_the_first_unit_is_the_current_minute,
            a_cost_above_its_capacity_is_an_error_that_locks_nobody_out,
            a_lock_that_a_peer_set_denies_also_in_a_limiter_without_a_penalty,
            a_lock_that_a_peer_set_ends_when_its_time_is_over,
            a_smaller_capacity_caps_at_once_and_a_unit_counts_from_the_last_inflow,
            an_idle_bucket_expires_and_is_full_then,
            a_bucket_smaller_than_a_units_quantity_is_full_only_after_the_unit,
        }
        peek {
            a_peek_says_what_a_check_at_that_time_says,
            a_peek_at_a_rate_limiter_says_what_its_check_says,
            a_peek_counts_all_expired_grants_however_many,
            a_peek_creates_no_limiter_and_needs_one,
            a_peek_takes_nothing_and_its_grant_gives_nothing_back,
            a_peek_sets_no_penalty_and_sees_one,
            several_limiters_are_peeked_at_as_they_decide,
            a_reset_target_is_like_one_without_requests,
            a_reset_leaves_no_counter_of_a_period,
            a_reset_of_a_rate_limiter_frees_its_permits_and_keeps_its_rate,
            a_reset_of_a_rate_per_client_frees_the_permits_of_this_client,
            a_reset_of_a_key_frees_its_permits_alone,
            a_reset_serves_those_who_wait,
        }
        penalty {
            a_denied_target_stays_denied_for_the_penalty_even_if_all_is_back,
            a_locked_out_target_is_free_when_the_penalty_is_over,
            a_lock_is_for_its_target_alone,
            a_denial_states_the_longer_of_the_penalty_and_its_own_time,
            without_a_penalty_nobody_is_locked_out_and_a_peers_lock_is_ignored,
            of_several_limiters_one_that_grants_locks_nobody_out,
            one_locked_limiter_of_several_denies_for_all_and_none_is_charged,
            a_penalty_that_is_no_whole_number_of_milliseconds_from_1_is_refused,
        }
        untrusted_keys {
            no_two_keys_share_state_whatever_they_hold,
            an_empty_key_is_refused_unless_it_is_accepted,
            a_key_without_a_prefix_may_begin_with_a_hash_tag_and_with_nothing_else,
            a_key_is_on_one_line_of_an_errors_message_whatever_it_holds,
            a_keys_limiter_is_the_one_that_decided,
        }
        key_types {
            two_kinds_on_one_target_get_the_same_answers_on_every_store,
            two_charges_of_one_name_are_refused_whatever_their_kinds,
            an_rratelimiter_finds_the_state_of_other_kinds_bad_but_not_of_windows,
            a_limiter_of_another_kind_does_not_use_an_rratelimiters_state,
        }
        waiting {
            after_a_waiter_gave_up_the_next_call_is_decided_at_once,
            a_waiter_that_fits_is_served_when_the_one_before_it_gives_up,
            a_waiter_that_fits_is_served_when_all_before_it_leave_in_any_order,
            the_next_one_is_asked_for_after_a_grant_was_handed_on_to_the_head,
            a_waiter_not_polled_for_long_neither_waits_longer_nor_holds_up_others,
            permits_released_during_a_waiters_first_call_are_not_forgotten,
            grants_that_dropped_waiters_never_received_let_nobody_exceed_the_rate,
            a_queue_with_a_backlog_leaves_permits_to_another_client,
            a_timeout_ends_with_false_when_it_has_passed_and_not_before,
            a_timeout_beyond_the_range_of_the_clock_never_ends,
            the_longest_response_timeout_is_accepted,
        }
        waiting_for_a_key {
            waiting_creates_the_limiter_of_a_key_even_if_it_is_lost_meanwhile,
            a_timed_wait_for_a_key_is_false_where_its_permits_come_back_later,
            a_limiter_whose_keep_alive_is_its_interval_is_kept_by_its_waiters,
        }
        with_rate {
            every_form_of_request_creates_a_missing_limiter_that_does_not_expire,
            no_form_of_request_changes_a_limiter_that_exists,
            a_shared_rate_leaves_a_limiter_that_exists_and_creates_a_missing_one,
            a_keep_alive_is_that_of_a_limiter_that_the_request_creates,
            a_limiter_that_is_created_forgets_what_an_earlier_one_left,
            two_handles_with_different_rates_share_the_limiter_of_the_first,
            a_joint_decision_alone_reports_the_rate_that_it_found,
            in_a_missing_limiter_nothing_is_in_use_and_only_requests_create_it,
            a_rate_that_was_set_holds_for_a_handle_with_its_own,
            a_rate_that_cannot_be_set_is_refused_with_the_handle,
            waiters_create_a_limiter_that_was_lost_in_the_meantime,
        }
    }
    on_servers {
        existing_scripts {
            a_script_that_counts_the_members_of_a_log_counts_each_unit_of_cost,
            what_a_script_added_to_a_log_counts_here,
            requests_that_share_a_call_are_counted_one_by_one_too,
            a_large_cost_is_as_many_members,
            a_member_of_a_log_counts_1_whatever_it_holds,
            a_log_that_a_script_goes_on_using_lives_for_two_windows,
            the_script_of_a_quota_answers_as_described,
            a_quota_bucket_lives_for_twice_the_time_to_fill_as_a_scripts_does,
            what_a_script_left_in_a_bucket_of_a_quota_is_left_here,
        }
        corrupt_keys {
            a_number_that_only_lua_reads_is_refused,
            a_live_grant_whose_score_is_no_time_is_refused,
            in_a_joint_decision_a_number_that_only_lua_reads_charges_no_limiter,
            a_counter_that_only_lua_reads_is_refused_and_nobody_is_charged,
        }
    }
}
