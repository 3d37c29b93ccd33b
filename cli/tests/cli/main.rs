//! The program as an operator or a script uses it, on real servers.

mod bench;
mod connections;
mod doctor;
mod list;
mod operations;
mod refused;
mod run;
mod show;
mod support;
mod watch;
