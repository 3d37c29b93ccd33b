//! What only a Redis server shows: the keys, the way to it and back, and what goes wrong there.

#[path = "../support/by_hand.rs"]
mod by_hand;
#[path = "../support/events.rs"]
mod events;
mod every_method;
#[path = "../support/keys.rs"]
mod keys;
mod lives;
#[path = "../support/monitor.rs"]
mod monitor;
#[path = "../support/proxy.rs"]
mod proxy;
mod stage;
#[path = "../support/mod.rs"]
mod support;

mod a_call_is_one_round_trip;
mod a_call_takes_once;
mod a_full_server_is_an_error;
mod a_late_call_takes_nothing;
mod a_lost_server_is_found_again;
mod a_missing_server_is_an_error;
mod a_peer_ahead_is_told_once;
mod an_attempt_has_a_deadline;
mod any_connection_will_do;
mod bad_arguments_are_refused;
mod books_out_of_balance_are_settled;
mod keys_are_as_redisson_has_them;
mod keys_live_as_long_as_asked;
mod large_limiters;
mod large_limiters_are_audited;
mod limiters_combine_requests;
mod limiters_fixed_window;
mod limiters_in_one_round_trip;
mod limiters_keys_from_outside;
mod limiters_leaky_bucket;
mod limiters_of_another_kind_are_refused;
mod limiters_of_one_decision_share_a_slot;
mod limiters_penalty;
mod limiters_penalty_token_bucket;
mod limiters_quota_bucket;
mod limiters_sliding_log;
mod limiters_sliding_window;
mod limiters_token_bucket;
mod looking_changes_nothing;
mod many_limiters_share_a_call;
mod missing_permissions_are_errors;
mod names_that_spread_their_keys_are_refused_on_a_cluster;
mod remembered_denials;
mod secrets_stay_secret;
mod spoilt_keys_are_refused;
mod the_readmes_acl_rule_is_enough;
mod the_server_keeps_the_time;
