//! Serves the time of day.

use std::net::TcpListener;

const BUFFER: usize = 8080;
const DEFAULT_PORT: u16 = 8080;

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", DEFAULT_PORT))?;
    println!("{:?} {BUFFER}", listener.local_addr()?);
    Ok(())
}
