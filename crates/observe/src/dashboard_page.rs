//! The page of the dashboard.

const TEMPLATE: &str = include_str!("pages/dashboard.html");
const STYLES: [&str; 2] = [include_str!("pages/base.css"), include_str!("pages/dashboard.css")];
const SCRIPTS: [&str; 2] = [include_str!("pages/core.js"), include_str!("pages/dashboard.js")];

/// Returns the page. Only its own script and styles have the nonce, so a browser runs no others.
#[must_use]
pub fn dashboard_page(nonce: &str) -> String {
    TEMPLATE
        .replace("{{nonce}}", nonce)
        .replace("{{css}}", &STYLES.concat())
        .replace("{{js}}", &SCRIPTS.concat())
}
