//! Runs the fake model server by hand: `fake_model SCRIPT [ADDRESS:PORT]`. See docs/internals/fake-model.md.

#![expect(clippy::print_stdout, reason = "a program for people; it prints only its address")]

use std::net::TcpListener;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, file) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [file] => ("127.0.0.1:0", file.to_owned()),
        [file, address] => (address, file.to_owned()),
        _ => {
            eprintln!("usage: fake_model SCRIPT [ADDRESS:PORT]");
            return ExitCode::from(2);
        }
    };
    match serve(address, &file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("fake_model: {err}");
            ExitCode::FAILURE
        }
    }
}

fn serve(address: &str, file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let script = fake_model::parse(&std::fs::read_to_string(file)?)?;
    let listener = TcpListener::bind(address)?;
    println!("http://{}", listener.local_addr()?);
    fake_model::Server::new(script).serve(listener)?;
    Ok(())
}
