//! `purlin config`: shows the configuration and its sources, prints its schema, imports OpenCode's.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use engine::words::{one_line, visible};
use serde_json::{Value, json};
use settings::config::check::join;
use settings::config::import::Import;
use settings::config::keys::{self, KEYS, Kind, ProjectUse};
use settings::config::sources::{Origin, Sources};
use settings::config::{check_readable, schema};
use settings::moving;
use settings::{Config, DiskReader, Limits, Project, Trust};

use crate::env;
use crate::stdout::print;

/// A subcommand of `purlin config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print all effective values and their sources; secrets are masked
    Show {
        /// Print one JSON line per entry
        #[arg(long)]
        json: bool,
        /// Use this configuration file instead of the default purlin.json
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Show the configuration with this model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        /// Include the settings of the project in this directory
        #[arg(long, value_name = "FOLDER", default_value = ".")]
        cwd: PathBuf,
    },
    /// Print the JSON Schema of purlin.json, for editors
    Schema,
    /// Show what is used of OpenCode, Claude Code and Codex, what is changed, and what is not supported
    Import {
        /// Write OpenCode's settings to the configuration file; existing settings do not change
        #[arg(long)]
        write: bool,
        /// Use this OpenCode configuration file
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Use this configuration file instead of the default purlin.json
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// Runs the subcommand.
///
/// # Errors
/// Says what failed.
pub fn run(command: ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Show { json, config, model, cwd } => {
            check_readable(config.as_deref())?;
            let mut sources = Sources::gather(config, &env::environment());
            if let Some(model) = model {
                let flag = keys::find("model").and_then(|top| top.flag).unwrap_or_default();
                sources.set("model", model.into(), Origin::Flag(flag));
            }
            let mut rows = rows(&sources);
            let project = Project::read(&cwd, &env::directories(), &DiskReader);
            rows.extend(project_rows(&project));
            print_rows(&rows, json)?;
            let mut problems = std::mem::take(&mut sources.problems);
            problems.extend(project.problems());
            problems.iter().for_each(|problem| eprintln!("{problem}"));
        }
        ConfigCommand::Import { write, from, config } => import(from, config, write)?,
        ConfigCommand::Schema => {
            let text = serde_json::to_string_pretty(&schema::schema())?;
            print(&format!("{text}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows what becomes of the settings of other agents; with `write`, imports OpenCode's.
fn import(from: Option<PathBuf>, file: Option<PathBuf>, write: bool) -> anyhow::Result<()> {
    let environment = env::environment();
    let directories = &environment.directories;
    let is_named = from.is_some();
    let opencode = Import::read(from, file.as_deref(), directories);
    let mut problems = Vec::new();
    let others = match is_named {
        true => Vec::new(),
        false => others(&environment, &mut problems),
    };
    let opencode = match opencode {
        Err(err) if is_named || write => return Err(err),
        Err(_) if others.is_empty() => {
            print("No settings of OpenCode, Claude Code or Codex were found.\n")?;
            return Ok(());
        }
        opencode => opencode.ok(),
    };
    let mut rows = Vec::new();
    if let Some(import) = &opencode {
        rows.extend(import.rows());
        let at = import.source.display();
        problems.extend(import.problems.iter().map(|problem| format!("{at}:{problem}")));
    }
    rows.extend(others);
    let mut shown = table(&rows);
    match opencode {
        Some(import) if write => {
            let written = import.write(file, directories)?;
            shown.push_str(&format!("Saved to {}.\n", written.display()));
        }
        Some(_) => shown.push_str(
            "What is taken or changed is in effect already. To copy OpenCode's settings to purlin.json, run `purlin config import --write`.\n",
        ),
        None => shown.push_str("What is taken or changed is in effect already; there is nothing to copy.\n"),
    }
    print(&shown)?;
    problems.iter().for_each(|problem| eprintln!("{}", visible(problem)));
    Ok(())
}

/// Lists what becomes of the settings of Claude Code and Codex, and of the files of all three.
fn others(environment: &settings::Environment, problems: &mut Vec<String>) -> Vec<moving::Row> {
    let mut rows = Config::default().add_other_agents(environment, problems);
    let (own, _) = Config::load(None, environment);
    rows.extend(moving::files::rows(&own.additions, &environment.directories, &DiskReader));
    rows
}

/// Prints rows as a table, with the source of each.
fn table(rows: &[moving::Row]) -> String {
    let setting = |row: &moving::Row| one_line(&row.setting);
    let width = rows.iter().map(|row| setting(row).chars().count()).max().unwrap_or(0).min(48);
    let line = |row: &moving::Row| {
        let note = match row.note.is_empty() {
            true => String::new(),
            false => format!(": {}", one_line(&row.note)),
        };
        let (setting, source) = (setting(row), one_line(&row.source));
        format!("{:<13}  {setting:<width$}  ({source}){note}\n", row.state.word())
    };
    rows.iter().map(line).collect()
}

/// One value.
#[derive(Debug, PartialEq)]
struct Row {
    /// Its path.
    path: String,
    /// The value, with secrets masked.
    value: Value,
    /// Its source.
    origin: String,
}

/// Lists all effective values.
fn rows(sources: &Sources) -> Vec<Row> {
    let mut rows = Vec::new();
    for top in &KEYS {
        let name = top.key.name;
        match (&top.key.kind, sources.value.get(name)) {
            (Kind::Limits, given) => {
                for (limit, default, _) in Limits::TABLE {
                    let path = format!("limits.{limit}");
                    let given = given.and_then(|limits| limits.get(*limit));
                    let origin = match given {
                        Some(_) => origin_of(sources, &path),
                        None => "default".to_owned(),
                    };
                    let value = given.cloned().unwrap_or_else(|| (*default).into());
                    rows.push(Row { path, value, origin });
                }
            }
            (_, None) if name == "$schema" => {}
            (_, None) => {
                let (path, origin) = (name.to_owned(), "default".to_owned());
                rows.push(Row { path, value: Value::Null, origin });
            }
            (kind, Some(value)) => {
                leaves(Some(kind), value, name.to_owned(), &mut |path, value, _| {
                    let origin = origin_of(sources, &path);
                    rows.push(Row { path, value, origin });
                })
            }
        }
    }
    rows
}

/// Lists what a project's file says, and whether it is in effect.
fn project_rows(project: &Project) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, checked) in project.checked() {
        for (key, value) in &checked.value {
            let Some(top) = keys::find(key) else { continue };
            let standing = match (top.project, project.trust()) {
                (ProjectUse::May(_), _) | (ProjectUse::Trusted(_), Trust::Trusted) => "project",
                (ProjectUse::Trusted(_), Trust::Not(_)) => "project, needs trust",
                (ProjectUse::Never(_), _) => "project, ignored",
            };
            leaves(Some(&top.key.kind), value, key.clone(), &mut |path, value, _| {
                let own = checked.lines.get(&path).or_else(|| checked.lines.get(key));
                let line = own.copied().unwrap_or(1);
                rows.push(Row { path, value, origin: format!("{name}:{line}, {standing}") });
            });
        }
    }
    rows
}

fn origin_of(sources: &Sources, path: &str) -> String {
    sources.origin(path).map_or_else(|| "default".to_owned(), Origin::to_string)
}

/// Is given the path of a value, the value as it is shown, and the value itself.
type Visit<'a> = dyn FnMut(String, Value, &Value) + 'a;

/// Visits the values inside a value; secrets are masked.
fn leaves(kind: Option<&Kind>, value: &Value, path: String, visit: &mut Visit) {
    let Value::Object(members) = value else {
        let is_secret = matches!(kind, Some(Kind::Secret));
        let shown = if is_secret { masked(value) } else { value.clone() };
        // Addresses and command lines may contain keys, too.
        let name = if path.to_ascii_lowercase().ends_with("url") { "url" } else { "value" };
        let mut shown = json!({ name: shown });
        observe::mask::mask(&mut shown);
        visit(path, shown[name].take(), value);
        return;
    };
    if members.is_empty() {
        visit(path, value.clone(), value);
        return;
    }
    for (name, value) in members {
        let kind = match kind {
            Some(Kind::Map(kind)) => Some(*kind),
            Some(Kind::Object(keys) | Kind::Open(keys)) => {
                keys.iter().find(|key| key.name == name).map(|key| &key.kind)
            }
            Some(Kind::Either(kinds)) => kinds
                .iter()
                .find_map(|kind| if let Kind::Map(kind) = kind { Some(*kind) } else { None }),
            _ => None,
        };
        // An unknown key may hold a secret of another program.
        let kind = kind.or(Some(&Kind::Secret).filter(|_| looks_secret(name)));
        leaves(kind, value, join(&path, name), visit);
    }
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "auth", "cookie"].iter().any(|part| name.contains(part))
}

/// Masks a secret. A reference such as `{env:NAME}` is shown.
fn masked(value: &Value) -> Value {
    match value.as_str() {
        Some(text)
            if text.starts_with('{') && text.ends_with('}') && text.matches('{').count() == 1 =>
        {
            value.clone()
        }
        _ => "****".into(),
    }
}

fn print_rows(rows: &[Row], as_json: bool) -> anyhow::Result<()> {
    print(&text_of(rows, as_json))
}

fn text_of(rows: &[Row], as_json: bool) -> String {
    let mut text = String::new();
    for Row { path, value, origin } in rows {
        if as_json {
            let line = json!({ "key": path, "value": value, "origin": origin });
            text.push_str(&format!("{line}\n"));
        } else {
            let value = if value.is_null() { "(not set)".to_owned() } else { value.to_string() };
            let value = visible(&value);
            let (path, origin) = (visible(path), visible(origin));
            text.push_str(&format!("{path} = {value}  ({origin})\n"));
        }
    }
    text
}

/// Returns what `purlin config show` prints, and the secrets that it masks.
pub(crate) fn report() -> (String, Vec<String>) {
    let sources = Sources::gather(None, &env::environment());
    let project = Project::read(Path::new("."), &env::directories(), &DiskReader);
    let mut rows = rows(&sources);
    rows.extend(project_rows(&project));
    let mut text = text_of(&rows, false);
    for problem in sources.problems.iter().cloned().chain(project.problems()) {
        text.push_str(&format!("problem: {}\n", visible(&problem)));
    }
    let mut secrets = Vec::new();
    for top in &KEYS {
        let value = sources.value.get(top.key.name).unwrap_or(&Value::Null);
        leaves(Some(&top.key.kind), value, top.key.name.to_owned(), &mut |_, shown, value| {
            add_secrets(value, &shown, &mut secrets);
        });
    }
    (text, secrets)
}

/// Adds the strings that are not shown as they are, and what variables hold that are named instead.
fn add_secrets(value: &Value, shown: &Value, secrets: &mut Vec<String>) {
    match (value, shown) {
        (Value::Array(items), Value::Array(shown)) => {
            items.iter().zip(shown).for_each(|(item, shown)| add_secrets(item, shown, secrets));
        }
        (Value::String(text), shown) if value == shown => {
            let variable = text.strip_prefix("{env:").and_then(|text| text.strip_suffix('}'));
            secrets.extend(variable.and_then(env::variable));
        }
        (Value::String(text), _) => secrets.push(text.clone()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_shown_with_its_origin_and_secrets_are_not() {
        let mut sources = Sources::default();
        let text = r#"{
            "provider": { "p": { "options": {
                "apiKey": "sk-very-secret", "headers": { "X": "{env:X}" }, "baseURL": "http://h?k=hidden", "sessionToken": "abc",
            } } },
            "mcp": { "s": { "command": ["x", "--token", "hidden"], "environment": { "A": "hidden" } } },
        }"#;
        sources.take_file(text, Path::new("/c/purlin.json"));
        let rows = rows(&sources);
        let shown: Vec<String> = rows
            .iter()
            .filter(|row| row.origin != "default")
            .map(|row| format!("{} {} {}", row.path, row.value, row.origin))
            .collect();
        let mut expected = [
            r#"provider.p.options.apiKey "****" /c/purlin.json:3"#,
            r#"provider.p.options.headers.X "{env:X}" /c/purlin.json:3"#,
            r#"provider.p.options.baseURL "http://h?k=****" /c/purlin.json:3"#,
            r#"provider.p.options.sessionToken "****" /c/purlin.json:3"#,
            r#"mcp.s.command ["x","--token","****"] /c/purlin.json:5"#,
            r#"mcp.s.environment.A "****" /c/purlin.json:5"#,
        ]
        .map(str::to_owned);
        let mut shown = shown;
        shown.sort();
        expected.sort();
        assert_eq!(shown, expected);
        assert!(rows.iter().any(|row| row.path == "limits.expire_days" && row.origin == "default"));
        assert!(rows.iter().any(|row| row.path == "model" && row.value.is_null()));
    }
}
