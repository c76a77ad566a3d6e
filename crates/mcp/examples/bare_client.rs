//! The baseline for the cost of tool calls: a client that uses only the MCP library. `bare_client SERVER`.
//!
//! For each line of input, a number, it calls `echo` that many times and then prints a line. `cargo xtask bench mcp`
//! compares Purlin with it.

#![expect(clippy::print_stdout, reason = "a program of its own that reports on stdout")]

use std::io::BufRead;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).ok_or("bare_client SERVER")?;
    let mut child = process::spawn(&process::Spec::new(server, "/"))?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the server has no pipes".into());
    };
    let client = ().serve((output, input)).await?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        for _ in 0..line?.trim().parse::<u32>()? {
            let arguments = serde_json::json!({ "text": "hi" }).as_object().cloned();
            let mut params = CallToolRequestParams::new("echo");
            params.arguments = arguments;
            client.call_tool(params).await?;
        }
        println!("done");
    }
    Ok(())
}
