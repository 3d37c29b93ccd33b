//! Many requests at once: combining, waiting in line, cancellation.

#[path = "../support/by_hand.rs"]
mod by_hand;
mod in_memory;
mod keyed;
#[path = "../support/keys.rs"]
mod keys;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/mod.rs"]
mod support;

mod a_dead_runtime_holds_nobody_up;
mod a_dropped_request_keeps_nothing;
mod a_sleeping_caller_holds_nobody_up;
mod a_slow_server_keeps_the_order;
mod cancelled_at_random_moments_nothing_is_lost;
mod leaving;
mod many_waiters_cost_few_calls;
mod rates_change_while_waiting;
mod runtimes;
mod timeouts_are_exact;
mod together_is_as_one_by_one;
mod waiters_are_served_in_order;
