//! An agent on a server: by its address, over a network that fails.

use super::terminal::Opening;
use crate::directory::Directory;
use crate::server::client::{Server, numbered_script};
use crate::server::security::token;
use crate::server::shim::Network;

fn words(all: &str) -> Vec<&str> {
    let is_number = |word: &&str| {
        word.strip_prefix('w')
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    all.split_whitespace().filter(is_number).collect()
}

// R: C1, C2, S9
#[test]
fn turn_on_a_server_goes_on_while_the_network_is_cut() {
    let directory = Directory::new();
    directory.write("script.acp", &numbered_script(400, 2));
    let server = Server::start(&directory, &[]);
    let network = Network::to(&server);
    let terminal = Opening::args(&format!("--agent http://{}", network.address)).start();
    terminal.shows("Build ·");
    terminal.send("go");
    for word in ["w20", "w90"] {
        terminal.shows_where(word, |all| words(all).contains(&word));
        network.cut();
        terminal.shows("Connected again.");
    }
    terminal.shows_where("the end", |all| words(all).contains(&"w399") && !all.contains("Working"));
    let all = terminal.all();
    let expected: Vec<String> = (0..400).map(|number| format!("w{number}")).collect();
    assert_eq!(words(&all), expected, "{all}");
    assert_eq!(all.matches("> go").count(), 1, "{all}");
    assert!(!all.contains("Continue the turn"), "{all}");
}

// R: C2
#[test]
fn server_that_cannot_be_reached_is_reported() {
    let directory = Directory::new();
    directory.write("script.acp", "model text \"Hello.\"\n");
    let server = Server::start(&directory, &[]);
    let network = Network::to(&server);
    network.lead_to(None);
    let terminal = Opening::args(&format!("--agent ws://{}/acp", network.address)).start();
    terminal.shows("Could not reconnect. Press Enter to try again.");
    terminal.keys(&["-l", "typed meanwhile"]);
    network.lead_to(Some(&server));
    terminal.shows("> typed meanwhile");
    terminal.keys(&["Enter"]);
    terminal.shows("Connected.");
    terminal.shows("> typed meanwhile");
    terminal.keys(&["Enter"]);
    terminal.shows("Hello.");
}

// R: C3
#[test]
fn token_is_sent_and_never_shown() {
    let directory = Directory::new();
    directory.write("script.acp", "model text \"Hello.\"\n");
    directory.write("right", &format!("{}\n", token(&directory, "ann", &[])));
    directory.write("wrong", "purlin_wrong_token\n");
    let tokens = directory.join("tokens").display().to_string();
    let server = Server::start(&directory, &["--tokens", &tokens]);
    let open = |file: &str| {
        let file = directory.join(file);
        let args = format!("--agent ws://{} --token-file '{}'", server.address, file.display());
        Opening::args(&args).start()
    };
    let wrong = open("wrong");
    wrong.shows("the server does not accept the token (401)");
    assert!(!wrong.all().contains("purlin_wrong_token"), "{}", wrong.all());
    assert!(!wrong.all().contains("Reconnecting"), "another try would not help: {}", wrong.all());
    let right = open("right");
    right.shows("Build ·");
    right.send("hi");
    right.shows("Hello.");
}
