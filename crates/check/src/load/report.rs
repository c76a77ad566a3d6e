//! Reports of load tests: a table for the terminal, and one HTML page with plots.

use std::fmt::Write as _;

use super::{LoadOutcome, Measured};

const COLOURS: [&str; 4] = ["#1e88e5", "#d81b60", "#43a047", "#fb8c00"];

/// Prints a table of all agents and scenarios.
#[must_use]
pub fn terminal(outcomes: &[LoadOutcome]) -> String {
    let mut out = format!(
        "{:<14} {:<13} {:>16} {:>6} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7}\n",
        "agent",
        "scenario",
        "load",
        "s",
        "updates/s",
        "MB/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "first",
        "CPU s",
        "own s",
        "MB"
    );
    for outcome in outcomes {
        for it in &outcome.measured {
            writeln!(
                out,
                "{:<14} {:<13} {:>16} {:>6.1} {:>9.0} {:>8.2} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>7.2} {:>7.2} {:>7.0}",
                outcome.agent.chars().take(14).collect::<String>(),
                it.scenario.name,
                shape(it),
                it.seconds,
                it.updates_per_second,
                it.megabytes_per_second,
                it.turn.p50,
                it.turn.p95,
                it.turn.p99,
                it.first.p50,
                it.cpu,
                it.own_cpu,
                it.peak
            )
            .ok();
            if let Some(failure) = &it.failure {
                writeln!(
                    out,
                    "  {} of {} turns failed: {failure}",
                    it.failed,
                    it.failed + it.turns
                )
                .ok();
            }
        }
    }
    out
}

fn shape(it: &Measured) -> String {
    let scenario = &it.scenario;
    format!("{}×{}×{}×{}", scenario.sessions, scenario.turns, scenario.chunks, scenario.size)
}

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:84em;padding:0 1em;color:#222;background:#fff}\
.wide{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}\
td:first-child,td:nth-child(2){text-align:left}.key{display:inline-block;margin-right:1em}.failed{color:#b3261e;font-weight:600}\
svg{width:480px;max-width:100%;height:auto;margin:0 1em 1em 0;background:#f6f6f6}text{fill:#444;font-size:12px}line{stroke:#ccc}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#333}svg{background:#222}text{fill:#bbb}line{stroke:#444}.failed{color:#ff8a80}}";

/// Prints one page: the table, and plots of CPU and memory over time for each scenario, agents side by side.
#[must_use]
pub fn html(outcomes: &[LoadOutcome]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>ACP load</title><style>{STYLE}</style></head><body>\n<h1>ACP load</h1>\n<p>Load is sessions × turns × chunks × bytes. Times are in milliseconds, from a prompt to its answer and to its first text. CPU is of the agent with everything it started; own is this program with its model server.</p>\n<div class=\"wide\"><table><tr><th>agent<th>scenario<th>load<th>s<th>updates/s<th>MB/s<th>p50<th>p95<th>p99<th>max<th>first p50<th>CPU s<th>own s<th>MB<th>failed</tr>\n"
    );
    for outcome in outcomes {
        outcome.measured.iter().for_each(|it| row(&mut out, outcome, it));
    }
    out += "</table></div>\n<p>";
    for (index, outcome) in outcomes.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let agent = escape(&outcome.agent);
        write!(out, "<span class=\"key\"><span style=\"color:{colour}\">■</span> {agent}</span>")
            .ok();
    }
    out += "</p>\n";
    for (number, outcome) in outcomes.iter().enumerate() {
        for (index, it) in outcome.measured.iter().enumerate() {
            // A ramp may be longer for one agent than for another: each step is plotted once.
            if outcomes[..number].iter().any(|earlier| earlier.measured.len() > index) {
                continue;
            }
            let runs: Vec<Option<&Measured>> =
                outcomes.iter().map(|outcome| outcome.measured.get(index)).collect();
            writeln!(out, "<h2>{} {}</h2>", it.scenario.name, shape(it)).ok();
            out += &plot("memory", "MB", &runs, |it| {
                it.samples.iter().map(|at| (at.at, at.memory)).collect()
            });
            out += &plot("CPU", "s", &runs, |it| {
                it.samples.iter().map(|at| (at.at, at.cpu)).collect()
            });
            out.push('\n');
        }
    }
    out + "</body></html>\n"
}

fn row(out: &mut String, outcome: &LoadOutcome, it: &Measured) {
    let failed = match &it.failure {
        None => "0".to_owned(),
        Some(failure) => {
            format!("<span class=\"failed\" title=\"{}\">{}</span>", escape(failure), it.failed)
        }
    };
    writeln!(
        out,
        "<tr><td>{} {}<td>{}<td>{}<td>{:.1}<td>{:.0}<td>{:.2}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.2}<td>{:.2}<td>{:.0}<td>{failed}</tr>",
        escape(&outcome.agent), escape(&outcome.version), it.scenario.name, shape(it), it.seconds,
        it.updates_per_second, it.megabytes_per_second, it.turn.p50, it.turn.p95, it.turn.p99,
        it.turn.max, it.first.p50, it.cpu, it.own_cpu, it.peak,
    )
    .ok();
}

type Points = Vec<(f64, f64)>;

/// Draws one quantity of all agents over time, with a line for the half and the most of it.
fn plot(
    title: &str,
    unit: &str,
    runs: &[Option<&Measured>],
    points: fn(&Measured) -> Points,
) -> String {
    const WIDTH: f64 = 480.0;
    const HEIGHT: f64 = 200.0;
    const LEFT: f64 = 60.0;
    const TOP: f64 = 24.0;
    let (right, bottom) = (WIDTH - 10.0, HEIGHT - 24.0);
    let all: Vec<Option<Points>> = runs.iter().map(|run| run.map(points)).collect();
    let most = |pick: fn(&(f64, f64)) -> f64| {
        all.iter().flatten().flatten().map(pick).fold(1e-9, f64::max)
    };
    let (seconds, top) = (most(|point| point.0), most(|point| point.1));
    let place =
        |x: f64, y: f64| (LEFT + x / seconds * (right - LEFT), bottom - y / top * (bottom - TOP));
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title} in {unit}\"><text x=\"4\" y=\"14\">{title}, {unit}</text>"
    );
    for part in [0.0, 0.5, 1.0] {
        let (_, y) = place(0.0, part * top);
        let (x, _) = place(part * seconds, 0.0);
        write!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.0}\" x2=\"{right}\" y2=\"{y:.0}\"/><text x=\"{0}\" y=\"{1:.0}\" text-anchor=\"end\">{2}</text><text x=\"{x:.0}\" y=\"{3}\" text-anchor=\"{4}\">{5:.1} s</text>",
            LEFT - 6.0,
            y + 4.0,
            number(part * top),
            HEIGHT - 8.0,
            if part == 1.0 { "end" } else { "middle" },
            part * seconds
        )
        .ok();
    }
    for (index, points) in all.iter().enumerate() {
        let Some(points) = points else { continue };
        let line: Vec<String> = points
            .iter()
            .map(|(x, y)| place(*x, *y))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let colour = COLOURS[index % COLOURS.len()];
        write!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            line.join(" ")
        )
        .ok();
    }
    out + "</svg>"
}

/// Prints a number of an axis.
fn number(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
