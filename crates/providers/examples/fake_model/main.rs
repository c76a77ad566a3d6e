//! A model server that says what a script says, in all four formats. See docs/internals/fake-model.md.

#![expect(clippy::print_stdout, reason = "a program for people; its address is all it prints")]

mod script;
mod server;
mod speak;

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
    let script = script::parse(&std::fs::read_to_string(file)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("http://{}", listener.local_addr()?);
        server::serve(listener, server::Shared::new(script)).await;
        Ok(())
    })
}
