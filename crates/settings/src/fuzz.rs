//! Fuzz target: the configuration, of ours and of others.

#[test]
fn fuzz_config() {
    let words = [
        "{",
        "}",
        "\"",
        "//",
        "/*",
        ",",
        "null",
        "\"permission\":",
        "\"bash\":",
        "\"allow\"",
        "\"mcp\":",
        "\"limits\":",
        "[",
        "]",
        "---\n",
        "[a.b]\n",
        "a = 1\n",
        "\"\"\"",
        "{env:X}",
    ];
    fuzzing::run("config", &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let mut checked = crate::config::check::check(text);
        checked.remove_invalid();
        drop(crate::toml::parse(text));
        let (_, rest) = crate::custom::front_matter::split(text);
        assert!(text.ends_with(rest));
    });
}
