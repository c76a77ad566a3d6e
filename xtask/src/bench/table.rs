//! Results of benchmarks: rows of a table, each with its goal and whether it is met.

use std::fmt;

/// The first lines of the table.
pub(crate) const HEAD: &str = "\
| benchmark | what | Purlin | compared with | ratio | goal | |
|---|---|---|---|---|---|---|";

/// One figure: the median of several rounds, with the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    smallest: f64,
    largest: f64,
}

impl Spread {
    /// Computes the figure from the rounds.
    pub(crate) fn of(mut rounds: Vec<f64>) -> Spread {
        rounds.sort_by(f64::total_cmp);
        let at = |index: usize| rounds.get(index).copied().unwrap_or(f64::NAN);
        Spread {
            median: at(rounds.len() / 2),
            smallest: at(0),
            largest: at(rounds.len().saturating_sub(1)),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, smallest, largest } = *self;
        if smallest == largest {
            return write!(out, "{}", short(median));
        }
        write!(out, "{} ({}..{})", short(median), short(smallest), short(largest))
    }
}

/// Formats a number with three significant digits.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{number:.digits$}")
}

/// The goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// The median is at most this.
    AtMost(f64),
    /// The median is at most this many times that of the other program.
    Times(f64),
    /// None: the figure explains another one.
    Informational,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    unit: &'static str,
    ours: Spread,
    other: Option<(&'static str, Spread)>,
    goal: Goal,
}

impl Row {
    /// Creates a row with a figure of Purlin alone.
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, ours: Vec<f64>) -> Row {
        Row {
            what: what.into(),
            unit,
            ours: Spread::of(ours),
            other: None,
            goal: Goal::Informational,
        }
    }

    /// Adds the same figure of another program.
    pub(crate) fn beside(mut self, name: &'static str, other: Vec<f64>) -> Row {
        self.other = Some((name, Spread::of(other)));
        self
    }

    /// Sets the goal.
    pub(crate) fn goal(mut self, goal: Goal) -> Row {
        self.goal = goal;
        self
    }

    /// Writes the row for the benchmark `name`.
    pub(crate) fn print(&self, name: &str) -> String {
        let unit = self.unit;
        let other = self.other.as_ref();
        let compared =
            other.map_or(String::new(), |(name, other)| format!("{name}: {other} {unit}"));
        let ratio = self.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let (goal, holds) = match self.goal {
            Goal::Informational => (String::new(), None),
            Goal::AtMost(most) => (format!("≤ {most} {unit}"), Some(self.ours.median <= most)),
            Goal::Times(most) => {
                (format!("≤ {most} times"), self.ratio().map(|ratio| ratio <= most))
            }
        };
        let verdict = holds.map_or("", |holds| if holds { "holds" } else { "missed" });
        let (what, ours) = (&self.what, self.ours);
        format!("| {name} | {what} | {ours} {unit} | {compared} | {ratio} | {goal} | {verdict} |")
    }

    fn ratio(&self) -> Option<f64> {
        self.other.as_ref().map(|(_, other)| self.ours.median / other.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_says_whether_its_goal_is_met() {
        let row = || Row::new("time", "ms", vec![3.0, 1.0, 2.0]);
        assert_eq!(row().print("a"), "| a | time | 2.00 (1.00..3.00) ms |  |  |  |  |");
        assert_eq!(
            row().goal(Goal::AtMost(1.5)).print("a"),
            "| a | time | 2.00 (1.00..3.00) ms |  |  | ≤ 1.5 ms | missed |"
        );
        assert_eq!(
            row().beside("SDK", vec![40.0]).goal(Goal::Times(1.0)).print("a"),
            "| a | time | 2.00 (1.00..3.00) ms | SDK: 40.0 ms | 0.05 | ≤ 1 times | holds |"
        );
    }
}
