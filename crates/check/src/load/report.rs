//! Reports of load tests: a table for the terminal, and one HTML page with plots.

use std::fmt::Write as _;

use super::{LoadOutcome, Measured};

const COLOURS: [&str; 4] = ["#1565c0", "#c2185b", "#2e7d32", "#ef6c00"];

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

/// Prints one page: the table, and plots of CPU and memory over time for each scenario, agents side by side.
#[must_use]
pub fn html(outcomes: &[LoadOutcome]) -> String {
    let mut out = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>ACP load</title><style>body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em}table{border-collapse:collapse}td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:right}td:first-child,td:nth-child(2){text-align:left}svg{background:#fafafa;margin-right:1em}.key{display:inline-block;margin-right:1em}</style>\n<h1>ACP load</h1>\n<p>Load is sessions × turns × chunks × bytes. Times are in milliseconds, from a prompt to its answer and to its first text. CPU is of the agent with everything it started; own is this program with its model server.</p>\n<table><tr><th>agent<th>scenario<th>load<th>s<th>updates/s<th>MB/s<th>p50<th>p95<th>p99<th>max<th>first p50<th>CPU s<th>own s<th>MB<th>failed</tr>\n".to_owned();
    for outcome in outcomes {
        for it in &outcome.measured {
            writeln!(
                out,
                "<tr><td>{} {}<td>{}<td>{}<td>{:.1}<td>{:.0}<td>{:.2}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.2}<td>{:.2}<td>{:.0}<td title=\"{}\">{}</tr>",
                escape(&outcome.agent), escape(&outcome.version), it.scenario.name, shape(it), it.seconds,
                it.updates_per_second, it.megabytes_per_second, it.turn.p50, it.turn.p95, it.turn.p99,
                it.turn.max, it.first.p50, it.cpu, it.own_cpu, it.peak,
                escape(it.failure.as_deref().unwrap_or_default()), it.failed
            )
            .ok();
        }
    }
    out += "</table>\n<p>";
    for (index, outcome) in outcomes.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        write!(
            out,
            "<span class=\"key\" style=\"color:{colour}\">■ {}</span>",
            escape(&outcome.agent)
        )
        .ok();
    }
    out += "</p>\n";
    let most = outcomes.iter().map(|outcome| outcome.measured.len()).max().unwrap_or(0);
    for index in 0..most {
        let runs: Vec<Option<&Measured>> =
            outcomes.iter().map(|outcome| outcome.measured.get(index)).collect();
        let Some(first) = runs.iter().flatten().next() else { continue };
        writeln!(out, "<h2>{} {}</h2>", first.scenario.name, shape(first)).ok();
        out += &plot("memory, MB", &runs, |it| {
            it.samples.iter().map(|at| (at.at, at.memory)).collect()
        });
        out += &plot("CPU, seconds", &runs, |it| {
            it.samples.iter().map(|at| (at.at, at.cpu)).collect()
        });
        out.push('\n');
    }
    out + "</html>\n"
}

type Points = Vec<(f64, f64)>;

fn plot(title: &str, runs: &[Option<&Measured>], points: fn(&Measured) -> Points) -> String {
    const WIDTH: f64 = 480.0;
    const HEIGHT: f64 = 160.0;
    let all: Vec<Option<Points>> = runs.iter().map(|run| run.map(points)).collect();
    let most = |pick: fn(&(f64, f64)) -> f64| {
        all.iter().flatten().flatten().map(pick).fold(1e-9, f64::max)
    };
    let (right, top) = (most(|point| point.0), most(|point| point.1));
    let mut out = format!(
        "<svg width=\"{WIDTH}\" height=\"{}\" role=\"img\" aria-label=\"{title}\"><text x=\"4\" y=\"14\" font-size=\"12\">{title}, up to {top:.1} in {right:.1} s</text>",
        HEIGHT + 20.0
    );
    for (index, points) in all.iter().enumerate() {
        let Some(points) = points else { continue };
        let place = |(x, y): &(f64, f64)| {
            format!("{:.1},{:.1}", x / right * WIDTH, 20.0 + HEIGHT - y / top * (HEIGHT - 4.0))
        };
        let line: Vec<String> = points.iter().map(place).collect();
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
