//! The program as an operator or a script uses it, on real servers.

mod connections;
mod doctor;
mod doctor_of_servers;
mod explain;
mod hold;
mod list;
mod operations;
mod pseudo_terminal;
mod questions;
mod refused;
mod run;
mod sentinel;
mod session;
mod show;
mod stored;
mod support;
mod watch;
mod watchdog;
