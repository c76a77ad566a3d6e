//! From the text of a command to its simple commands, assignments and redirections, with the grammar of bash.
//!
//! Only the node kinds named here are accepted. Everything else, and every syntax error, becomes [`Item::Opaque`], in addition to
//! everything found so far: a rule that forbids a command must see it even in input that cannot be analysed as a whole.

use tree_sitter::Node;

use super::grammar::{tree_of, tree_without_pipes};
use super::items::{Assignment, Item, Redirect, Simple};
use super::word::{self, Word};

/// The longest text that is parsed.
const LONGEST: usize = 10_000;
/// The most commands in one input. A user does not read more than this in a question.
const MOST: usize = 50;
/// The most words that braces may expand to: the shell makes all of them before anything runs.
const MOST_WORDS: u64 = 10_000;
/// The deepest nesting that is parsed.
const DEEPEST: usize = 60;

/// Splits a command into its parts.
pub(crate) fn parse(command: &str, is_deceptive: fn(char) -> bool) -> Vec<Item> {
    if command.len() > LONGEST {
        return vec![Item::Opaque(format!("it has more than {LONGEST} characters"))];
    }
    let mut reader = Reader { source: command, items: Vec::new() };
    let text = plain(command);
    let tree = tree_of(&text).or_else(|| {
        reader.opaque("it cannot be parsed");
        tree_without_pipes(&text)
    });
    let Some(tree) = tree else { return reader.items };
    if let Some(why) = doubtful_text(command, is_deceptive) {
        reader.opaque(why);
    }
    reader.check_cover(tree.root_node());
    reader.statement(tree.root_node(), 0);
    let count = reader.items.iter().filter(|item| matches!(item, Item::Simple(_))).count();
    if count > MOST {
        reader.opaque(format!("it has more than {MOST} commands"));
    }
    reader.items
}

/// Replaces every byte that is not printable ASCII by a letter. The shell treats them alike, and the grammar's scanner would read
/// past the end of C's character tables.
fn plain(command: &str) -> Vec<u8> {
    let is_plain = |byte: u8| matches!(byte, b'\n' | b'\t' | b'\r' | b' '..=b'~');
    command.bytes().map(|byte| if is_plain(byte) { byte } else { b'z' }).collect()
}

/// Finds characters that the grammar and the shell may read differently.
fn doubtful_text(command: &str, is_deceptive: fn(char) -> bool) -> Option<String> {
    let is_odd = |character: &char| {
        let is_space = character.is_whitespace() && !character.is_ascii();
        is_space || is_deceptive(*character)
    };
    if let Some(odd) = command.chars().find(is_odd) {
        return Some(format!("it contains the character {}", odd.escape_unicode()));
    }
    let bytes = command.as_bytes();
    let joins = |at: usize| {
        bytes[at..].starts_with(b"\\\n") && !(at > 0 && matches!(bytes[at - 1], b' ' | b'\t'))
    };
    (0..bytes.len()).any(joins).then(|| "a word continues on the next line".to_owned())
}

struct Reader<'a> {
    source: &'a str,
    items: Vec<Item>,
}

impl<'a> Reader<'a> {
    fn opaque(&mut self, why: impl Into<String>) {
        let item = Item::Opaque(why.into());
        if !self.items.contains(&item) {
            self.items.push(item);
        }
    }

    fn text(&self, node: Node<'_>) -> &'a str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    /// Checks that the parser skipped nothing: between the leaves there is only white space.
    fn check_cover(&mut self, root: Node<'_>) {
        let mut end = 0;
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            let is_whole = matches!(node.kind(), "string" | "raw_string" | "heredoc_body");
            if node.child_count() > 0 && !is_whole {
                let mut cursor = node.walk();
                let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
                open.extend(children.into_iter().rev());
                continue;
            }
            let between = self.source.get(end..node.start_byte()).unwrap_or_default();
            if !between.replace("\\\n", " ").trim().is_empty() {
                self.opaque("part of it cannot be parsed");
            }
            if node.kind() == "comment" {
                let before = self.source[..node.start_byte()].chars().next_back();
                if before.is_some_and(|before| !" \t\n;&|()".contains(before)) {
                    self.opaque("part of it may or may not be a comment");
                }
            }
            end = end.max(node.end_byte());
        }
        if !self.source.get(end..).unwrap_or_default().replace("\\\n", " ").trim().is_empty() {
            self.opaque("its end cannot be parsed");
        }
    }

    fn children(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        for child in children {
            if matches!(child.kind(), ";;" | ";&" | ";;&") && node.kind() != "case_item" {
                self.opaque("it is incomplete or not a command");
            }
            self.statement(child, depth + 1);
        }
    }

    fn statement(&mut self, node: Node<'_>, depth: usize) {
        if depth > DEEPEST {
            return self.opaque("it is nested too deeply");
        }
        if node.is_missing() || node.is_error() {
            self.opaque("it is incomplete or not a command");
        }
        match node.kind() {
            "command" => self.command(node, depth),
            "pipeline" => self.pipeline(node, depth),
            "program"
            | "list"
            | "subshell"
            | "if_statement"
            | "elif_clause"
            | "else_clause"
            | "while_statement"
            | "do_group"
            | "negated_command"
            | "case_statement"
            | "case_item"
            | "variable_assignments" => self.children(node, depth),
            "redirected_statement" => {
                let first = self.items.len();
                self.children(node, depth);
                self.feed(node, first);
            }
            "command_substitution" | "process_substitution" => self.substitution(node, depth),
            "compound_statement" => {
                if !self.text(node).starts_with('{') {
                    self.opaque("it contains arithmetic");
                }
                self.children(node, depth);
            }
            "for_statement" => self.for_statement(node, depth),
            "variable_assignment" => self.assignment(node, false, depth),
            "declaration_command" | "unset_command" => self.declaration(node, depth),
            "test_command" => self.test(node, depth),
            "function_definition" => {
                self.opaque("it defines a function");
                self.children(node, depth);
            }
            "file_redirect" => self.file_redirect(node, depth),
            "heredoc_redirect" => self.heredoc(node, depth),
            "herestring_redirect" => {
                self.words_below(node, depth);
            }
            "comment" => {}
            "word"
            | "string"
            | "raw_string"
            | "concatenation"
            | "number"
            | "simple_expansion"
            | "expansion"
            | "arithmetic_expansion"
            | "ansi_c_string"
            | "translated_string"
            | "extglob_pattern"
            | "brace_expression" => {
                self.word(node, depth);
            }
            _ if node.is_named() => {
                self.opaque(format!("it contains unsupported syntax (`{}`)", node.kind()));
                self.children(node, depth);
            }
            _ => {}
        }
    }

    /// Inside backquotes a backslash hides the next backquote from the grammar, but not from the shell.
    fn substitution(&mut self, node: Node<'_>, depth: usize) {
        let text = self.text(node);
        if text.starts_with('`') && text.contains('\\') {
            self.opaque("backquotes are nested");
        }
        let first = self.items.len();
        self.children(node, depth);
        if text.starts_with('>') {
            self.mark_input(first);
        }
    }

    fn pipeline(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        let mut before: Option<Vec<Word>> = None;
        for (index, child) in children.into_iter().enumerate() {
            let first = self.items.len();
            self.statement(child, depth + 1);
            let mut last = None;
            for item in &mut self.items[first..] {
                if let Item::Simple(simple) = item {
                    simple.has_input |= index > 0;
                    if simple.piped_from.is_none() && child.kind() != "pipeline" {
                        simple.piped_from.clone_from(&before);
                    }
                    last = Some(simple.words.clone());
                }
            }
            before = last;
        }
    }

    /// Marks the commands from an item on as having input, if the node opens input for them.
    fn feed(&mut self, node: Node<'_>, first: usize) {
        let mut cursor = node.walk();
        let opens = |child: Node<'_>| match child.kind() {
            "heredoc_redirect" | "herestring_redirect" => true,
            "file_redirect" => {
                let text = self.text(child).trim_start_matches(|c: char| c.is_ascii_digit());
                let from = text.strip_prefix('<').map(str::trim);
                from.is_some_and(|from| !matches!(from, "&-" | "/dev/null"))
            }
            _ => false,
        };
        if node.children(&mut cursor).any(opens) {
            self.mark_input(first);
        }
    }

    fn mark_input(&mut self, first: usize) {
        for item in &mut self.items[first..] {
            if let Item::Simple(simple) = item {
                simple.has_input = true;
            }
        }
    }

    fn command(&mut self, node: Node<'_>, depth: usize) {
        let first = self.items.len();
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let mut words = Vec::new();
        let mut end = node.start_byte();
        for child in children {
            if self.breaks(end, child.start_byte()) && !words.is_empty() {
                // The grammar sometimes ignores a line end where for the shell the next command begins.
                self.opaque("it is not clear where a command ends");
                let words = std::mem::take(&mut words);
                self.items.push(Item::Simple(Simple::new(words)));
            }
            end = child.end_byte();
            match child.kind() {
                "variable_assignment" => self.assignment(child, true, depth + 1),
                "file_redirect" | "heredoc_redirect" | "herestring_redirect" => {
                    self.statement(child, depth + 1);
                }
                "command_name" => words.push(self.command_name(child, depth + 1)),
                _ if child.is_error() || child.is_missing() => self.statement(child, depth + 1),
                "subshell" | "command" | "comment" => self.statement(child, depth + 1),
                _ if child.is_named() => words.push(self.word(child, depth + 1)),
                // `$` before a string, `==` and `=~` of tests: not part of a simple command.
                _ => self.opaque(format!("it contains `{}` in an unusual place", child.kind())),
            }
        }
        if words.is_empty() {
            return;
        }
        self.items.push(Item::Simple(Simple::new(words)));
        self.feed(node, first);
    }

    /// Tells whether a line ends between two offsets.
    fn breaks(&self, from: usize, to: usize) -> bool {
        self.source.get(from..to).unwrap_or_default().replace("\\\n", " ").contains('\n')
    }

    fn command_name(&mut self, node: Node<'_>, depth: usize) -> Word {
        let mut cursor = node.walk();
        let inner: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let word = match inner.as_slice() {
            [one] => self.word(*one, depth),
            _ => Word { raw: self.text(node).to_owned(), means: word::Meaning::Unknown },
        };
        if word.as_text().is_none() {
            self.opaque("the program is only known at run time");
        }
        word
    }

    /// Reads an argument and finds the commands in it.
    fn word(&mut self, node: Node<'_>, depth: usize) -> Word {
        let raw = self.text(node);
        let read = word::read(raw);
        let count = match &read {
            Some(Word { means: word::Meaning::Names(names), .. }) => word::brace_count(names),
            None if node.kind() != "string" => word::brace_count(raw),
            Some(_) | None => 1,
        };
        if count > MOST_WORDS {
            self.opaque("it expands to too many words");
        }
        if let Some(word) = read {
            return word;
        }
        self.expansions(node, depth);
        Word { raw: raw.to_owned(), means: word::Meaning::Unknown }
    }

    fn words_below(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            self.word(child, depth + 1);
        }
    }

    /// Checks a word that is not plain text.
    fn expansions(&mut self, node: Node<'_>, depth: usize) {
        if depth > DEEPEST {
            return self.opaque("it is nested too deeply");
        }
        match node.kind() {
            "command_substitution" | "process_substitution" => {
                return self.substitution(node, depth);
            }
            "simple_expansion" | "raw_string" | "ansi_c_string" | "number" | "string_content" => {
                return;
            }
            "expansion" => {
                let inner = self.text(node).trim_start_matches("${").trim_end_matches('}');
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if inner.is_empty() || !inner.chars().all(is_name) {
                    self.opaque("it expands a variable in a way that can run commands");
                }
            }
            "arithmetic_expansion" => {
                let is_sum = |c: char| c.is_ascii_digit() || " ()+-*/%".contains(c);
                let inside = self.text(node).strip_prefix("$((");
                if inside.is_some_and(|sum| sum.chars().all(is_sum)) {
                    return;
                }
                self.opaque("it contains arithmetic with variables");
            }
            "string" | "concatenation" | "translated_string" => {}
            "word" => {
                if word::read(self.text(node)).is_none() && !self.is_harmless_part(node) {
                    self.opaque(format!("`{}` cannot be analysed", self.text(node)));
                }
            }
            "array" | "subscript" | "variable_name" | "special_variable_name" => {}
            _ if node.is_error() => self.opaque("it is incomplete or not a command"),
            _ if node.is_named() => {
                self.opaque(format!("it contains unsupported syntax (`{}`)", node.kind()));
            }
            _ => return,
        }
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        for child in children {
            self.expansions(child, depth + 1);
        }
    }

    /// Tells whether a part of a word is harmless text, such as the `~root` of `~root/x` or a `#` inside.
    fn is_harmless_part(&self, node: Node<'_>) -> bool {
        let text = self.text(node);
        !text.contains(|c: char| "$`;|&()<>\\'\"".contains(c) || c.is_whitespace())
    }

    fn assignment(&mut self, node: Node<'_>, is_environment: bool, depth: usize) {
        let (Some(name), raw) = (node.child_by_field_name("name"), self.text(node)) else {
            return self.opaque("a variable is set in an unusual way");
        };
        if name.kind() != "variable_name" || raw.contains("+=") {
            self.opaque("a variable is set in an unusual way");
        }
        let value = match node.child_by_field_name("value") {
            Some(value) if value.kind() == "array" => {
                self.opaque("an array is set");
                self.expansions(value, depth + 1);
                Word { raw: self.text(value).to_owned(), means: word::Meaning::Unknown }
            }
            Some(value) => self.word(value, depth + 1),
            None => Word::text(""),
        };
        if name.kind() != "variable_name" {
            self.expansions(name, depth + 1);
            self.substitutions(name, depth + 1);
        }
        let name = self.text(name).to_owned();
        self.items.push(Item::Set(Assignment { name, value, is_environment }));
    }

    /// Finds commands anywhere below, even in syntax that cannot be analysed.
    fn substitutions(&mut self, node: Node<'_>, depth: usize) {
        if depth > DEEPEST {
            return self.opaque("it is nested too deeply");
        }
        if matches!(node.kind(), "command_substitution" | "process_substitution") {
            return self.substitution(node, depth);
        }
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            self.substitutions(child, depth + 1);
        }
    }

    fn declaration(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let mut words = Vec::new();
        let mut end = node.start_byte();
        for child in children {
            if self.breaks(end, child.start_byte()) {
                self.opaque("it is not clear where a command ends");
            }
            end = child.end_byte();
            if child.kind() == "variable_assignment" {
                self.assignment(child, true, depth + 1);
                words
                    .push(Word { raw: self.text(child).to_owned(), means: word::Meaning::Unknown });
            } else {
                words.push(self.word(child, depth + 1));
            }
        }
        self.items.push(Item::Simple(Simple::new(words)));
    }

    fn for_statement(&mut self, node: Node<'_>, depth: usize) {
        if !self.text(node).starts_with("for") {
            self.opaque("it waits for input");
        }
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        for child in children {
            if child.kind() == "variable_name" {
                let value = Word { raw: String::new(), means: word::Meaning::Unknown };
                let name = self.text(child).to_owned();
                self.items.push(Item::Set(Assignment { name, value, is_environment: false }));
            } else {
                self.statement(child, depth + 1);
            }
        }
    }

    /// Reads `[ … ]` and `[[ … ]]`. Arithmetic evaluates its operands, which may contain commands, so only plain numbers pass.
    fn test(&mut self, node: Node<'_>, depth: usize) {
        let raw = self.text(node);
        if !raw.starts_with('[') {
            self.opaque("it contains arithmetic");
        }
        let mut computes = false;
        let mut operands = Vec::new();
        let mut open = vec![node];
        while let Some(part) = open.pop() {
            match part.kind() {
                "test_operator" => match self.text(part) {
                    "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" => computes = true,
                    "-v" | "-R" => self.opaque("a test inspects a variable by name"),
                    _ => {}
                },
                "test_command"
                | "unary_expression"
                | "binary_expression"
                | "negation_expression"
                | "parenthesized_expression" => {
                    let mut cursor = part.walk();
                    open.extend(part.children(&mut cursor));
                }
                "regex" | "extglob_pattern" if !self.text(part).contains(['$', '`']) => {}
                "regex" | "extglob_pattern" => {
                    self.opaque("a test contains a pattern that is expanded");
                    self.substitutions(part, depth + 1);
                }
                _ if part.is_error() || part.is_missing() => self.statement(part, depth + 1),
                _ if part.is_named() => operands.push(self.word(part, depth + 1)),
                _ => {}
            }
        }
        let is_number = |word: &Word| {
            let raw = word.raw.trim_matches('"');
            matches!(raw, "$?" | "$#") || raw.parse::<i64>().is_ok()
        };
        if computes && !operands.iter().all(is_number) {
            self.opaque("a test contains arithmetic with more than plain numbers");
        }
        let is_one = |word: &Word| word.as_text().is_some() || word.is_quoted();
        if !raw.starts_with("[[") && !operands.iter().all(is_one) {
            self.opaque("the value of a variable may become part of the test");
        }
        let words = vec![Word { raw: raw.to_owned(), means: word::Meaning::Text("[".to_owned()) }];
        self.items.push(Item::Simple(Simple::new(words)));
    }

    fn file_redirect(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let mut operator = "";
        let mut targets = Vec::new();
        let mut end = node.start_byte();
        for child in children {
            if self.breaks(end, child.start_byte()) {
                self.opaque("it is not clear where a command ends");
            }
            end = child.end_byte();
            match child.kind() {
                "file_descriptor" => {}
                _ if child.is_error() || child.is_missing() => self.statement(child, depth + 1),
                _ if child.is_named() => targets.push(self.word(child, depth + 1)),
                _ => operator = self.text(child),
            }
        }
        let mut targets = targets.into_iter();
        let Some(target) = targets.next() else {
            if !operator.ends_with('-') {
                self.opaque("a file is opened in an unusual way");
            }
            return;
        };
        // For the shell a second word is an argument of the command, for the grammar another target.
        if targets.next().is_some() {
            self.opaque("words follow a redirection");
        }
        let is_number = target.raw.chars().all(|c| c.is_ascii_digit() || c == '-');
        if matches!(operator, ">&" | "<&") && is_number {
            return;
        }
        self.items.push(Item::Redirect(Redirect { writes: operator.contains('>'), target }));
    }

    /// Reads a here-document. It is data, unless the shell expands it.
    fn heredoc(&mut self, node: Node<'_>, depth: usize) {
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let mut start = "";
        let mut body = "";
        let mut end = "";
        for child in children {
            match child.kind() {
                "heredoc_start" => start = self.text(child),
                "heredoc_end" => end = self.text(child),
                "heredoc_body" => {
                    body = self.text(child);
                    self.substitutions(child, depth + 1);
                }
                "<<" | "file_descriptor" => {}
                "<<-" => self.opaque("a here-document has its indentation removed"),
                _ if child.is_named() => self.statement(child, depth + 1),
                _ => {}
            }
        }
        let name = start.trim_matches(|c| c == '\'' || c == '"');
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || end != name || body.lines().any(|line| line == name) {
            self.opaque("it is not clear where a here-document ends");
        }
        if start == name && body.contains(['$', '`', '\\']) {
            self.opaque("a here-document is expanded by the shell");
        }
    }
}
