//! Prints the Lua scripts as this crate sends them, for who writes a client in another language;
//! see `lua/README.md`.
//!
//! ```sh
//! cargo run --example scripts                 # the SHA-1 and the name of each script, as in lua/sha1.txt
//! cargo run --example scripts -- acquire.lua  # the text of a script
//! ```

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use sha1_smol::Sha1;

#[macro_use]
#[path = "../src/policies/registry.rs"]
mod registry;

#[path = "../src/store/redis/script/include.rs"]
mod include;

use include::{assemble, names, read};

fn main() -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let printed = match wanted.is_empty() {
        true => hashes(),
        false => wanted.iter().map(|name| text(name)).collect(),
    };
    let printed = printed.map(|printed| io::stdout().write_all(printed.as_bytes()));
    match printed {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => fail(&error.to_string()),
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

fn hashes() -> Result<String, String> {
    let lines = names().map(|name| {
        let hash = Sha1::from(text(name)?).digest();
        Ok(format!("{hash}  {name}\n"))
    });
    lines.collect()
}

fn text(name: &str) -> Result<String, String> {
    if !names().any(|script| script == name) {
        return Err(format!("there is no script {name}"));
    }
    assemble(name, read)
}

#[test]
fn what_it_prints_is_what_lua_sha1_txt_names() {
    assert_eq!(hashes().as_deref(), Ok(include_str!("../lua/sha1.txt")));
    assert!(text("shared/window.lua").is_err());
}
