//! The program as an operator or a script uses it, on real servers.

mod bench;
mod connections;
mod doctor;
mod list;
mod operations;
mod pseudo_terminal;
mod questions;
mod refused;
mod run;
mod session;
mod show;
mod support;
mod watch;
