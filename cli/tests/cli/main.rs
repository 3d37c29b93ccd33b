//! The program as an operator or a script uses it, on real servers.

mod bench;
mod connections;
mod doctor;
mod list;
mod operations;
mod pseudo_terminal;
mod refused;
mod run;
mod show;
mod support;
mod watch;
