//! Tables: columns as wide as their widest cell, narrower and wrapped where the screen is too small.

use pulldown_cmark::Alignment;

use crate::style::{Line, Span, Style};
use crate::text::wrap;

/// A column is not made narrower than this; a table that does not fit even then is shown as a list of its cells.
const MIN_COLUMN: usize = 6;

/// A table whose cells are being collected. The first row is the head.
#[derive(Debug)]
pub(super) struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Line>>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Table {
        Table { alignments, rows: vec![Vec::new()] }
    }

    pub(super) fn start_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn cell(&mut self, cell: Line) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub(super) fn render(self, columns: usize) -> Vec<Line> {
        let count = self.alignments.len();
        let widest = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(Line::width)
                .max()
                .unwrap_or(0)
                .max(1)
        };
        let mut widths: Vec<usize> = (0..count).map(widest).collect();
        // Three columns for each separator.
        let room = columns.saturating_sub(3 * count.saturating_sub(1));
        if count == 0 || room < MIN_COLUMN * count && widths.iter().sum::<usize>() > room {
            return self.as_list(columns);
        }
        while widths.iter().sum::<usize>() > room {
            let Some(widest) = widths.iter_mut().max() else { break };
            *widest -= 1;
        }
        let mut lines = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let style = if index == 0 { Style::BOLD } else { Style::PLAIN };
            lines.extend(self.row(row, &widths, style));
            if index == 0 {
                let bars: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Line::of(bars.join("─┼─"), Style::DIM));
            }
        }
        lines
    }

    fn row(&self, row: &[Line], widths: &[usize], style: Style) -> Vec<Line> {
        let none = Line::default();
        let cells: Vec<Vec<Line>> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| wrap(row.get(column).unwrap_or(&none), *width, &none, &none))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        (0..height)
            .map(|at| {
                let mut line = Line::default();
                for (column, width) in widths.iter().enumerate() {
                    if column > 0 {
                        line.push(Span::new(" │ ", Style::DIM));
                    }
                    let cell = cells[column].get(at).cloned().unwrap_or_default();
                    let free = width.saturating_sub(cell.width());
                    let before = match self.alignments[column] {
                        Alignment::Right => free,
                        Alignment::Center => free / 2,
                        Alignment::Left | Alignment::None => 0,
                    };
                    line.push(Span::plain(" ".repeat(before)));
                    line.extend(cell.styled(style).spans().to_vec());
                    let is_last = column + 1 == widths.len();
                    line.push(Span::plain(" ".repeat(if is_last { 0 } else { free - before })));
                }
                line
            })
            .collect()
    }

    /// Each row as `head: cell` lines.
    fn as_list(&self, columns: usize) -> Vec<Line> {
        let none = Line::default();
        let Some((head, rows)) = self.rows.split_first() else { return Vec::new() };
        let mut lines = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                lines.push(Line::default());
            }
            for (column, cell) in row.iter().enumerate() {
                let name = head.get(column).unwrap_or(&none).clone().styled(Style::BOLD);
                let mut line = name.then(Span::new(": ", Style::DIM));
                line.extend(cell.spans().to_vec());
                lines.extend(wrap(&line, columns, &none, &Line::plain("  ")));
            }
        }
        lines
    }
}
