//! One page that holds everything: tables, plots and targets, with nothing to load from anywhere.

use std::fmt::Write as _;

use super::{Table, Target};
use crate::published::{mechanism, ours};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
    h2{margin-top:2.5rem}table{border-collapse:collapse;font-size:14px}td,th{padding:.2rem .7rem;text-align:right;\
    border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}.no{color:#b00020}.yes{color:#1b6e3c}\
    text{font:12px system-ui,sans-serif}svg{display:block;margin:1rem 0}";
const WIDTH: f64 = 880.0;
const LEFT: f64 = 300.0;
const ROW_HEIGHT: f64 = 34.0;
const COLOURS: [&str; 3] = ["#888888", "#c76b29", "#2a5fa5"];

/// The page.
pub fn page(tables: &[Table], targets: &[Target]) -> String {
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>qhca laboratory</title><style>{STYLE}</style>\
         <h1>Laboratory</h1><p>All figures are simulated in virtual time, calibrated on the cells marked \"fit\"; nothing \
         here was measured on a card.</p>"
    );
    for table in tables {
        section(&mut text, table);
    }
    text.push_str("<h2>Targets</h2><table><tr><th>target<th>value<th>met");
    for target in targets {
        let (class, word) = if target.met { ("yes", "yes") } else { ("no", "no") };
        let _ =
            write!(text, "<tr><td>{}<td>{}<td class={class}>{word}", escaped(&target.target), target.value);
    }
    text.push_str("</table></html>\n");
    text
}

fn section(text: &mut String, table: &Table) {
    let (published, own) = (mechanism(table.system), ours(table.system));
    let _ = write!(
        text,
        "<h2>{}</h2><p>Change against the base, in per cent.</p>{}<table><tr><th>row<th>unit<th>published base\
         <th>lab base<th>error<th>{published}<th>{own}",
        table.system,
        plot(table)
    );
    for line in &table.lines {
        let change =
            |policy: &str| line.change_pct(policy).map_or(String::new(), |one| format!("{one:+.2} %"));
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{:+.1} %<td>{}<td>{}",
            escaped(&line.published.row),
            line.prediction.base.unit,
            line.published.base,
            line.prediction.base.value,
            line.base_error_pct(),
            change(published),
            change(own)
        );
    }
    text.push_str("</table>");
}

/// Three bars a row: published where given, the mechanism in the laboratory, ours.
fn plot(table: &Table) -> String {
    let (published, own) = (mechanism(table.system), ours(table.system));
    let rows: Vec<[Option<f64>; 3]> = table
        .lines
        .iter()
        .map(|line| [line.published.change_pct(), line.change_pct(published), line.change_pct(own)])
        .collect();
    let all = || rows.iter().flatten().flatten().copied();
    let (low, high) = (all().fold(0.0, f64::min), all().fold(1.0, f64::max));
    let x = |value: f64| LEFT + (value - low) / (high - low) * (WIDTH - LEFT - 70.0);
    let height = ROW_HEIGHT * rows.len() as f64 + 46.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\">");
    for (n, name) in ["published", published, own].iter().enumerate() {
        let at = LEFT + n as f64 * 190.0;
        let _ = write!(
            svg,
            "<rect x=\"{at}\" y=\"4\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"14\">{name}</text>",
            COLOURS[n],
            at + 18.0
        );
    }
    for (n, (line, bars)) in table.lines.iter().zip(&rows).enumerate() {
        let top = 28.0 + n as f64 * ROW_HEIGHT;
        let _ = write!(svg, "<text x=\"0\" y=\"{}\">{}</text>", top + 17.0, escaped(&line.published.row));
        for (bar, value) in bars.iter().enumerate() {
            let Some(value) = value else { continue };
            let y = top + bar as f64 * 9.0;
            let (from, to) = (x(value.min(0.0)), x(value.max(0.0)));
            let _ = write!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"8\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" style=\"font-size:9px\">{value:+.1}</text>",
                (to - from).max(0.5),
                COLOURS[bar],
                to + 4.0,
                y + 8.0
            );
        }
    }
    let zero = x(0.0);
    let _ = write!(
        svg,
        "<line x1=\"{zero:.1}\" x2=\"{zero:.1}\" y1=\"24\" y2=\"{}\" stroke=\"#444\"/></svg>",
        height - 14.0
    );
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
