//! The program as an operator or a script uses it, on real servers.

mod operations;
mod refused;
mod run;
mod support;
