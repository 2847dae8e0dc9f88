//! A Rust file as the rules see it: its code without comments and literals, and its imports.

/// One Rust file.
pub(crate) struct Source {
    /// Path from the repository's root.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text without comments, with strings and character literals emptied. Line numbers stay.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            path: path.into(),
            code: bare(&text),
            text,
        }
    }

    pub(crate) fn is_under(&self, folder: &str) -> bool {
        self.path.starts_with(folder)
    }

    /// Returns whether the file is compiled for tests only.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs" || name.ends_with("_tests.rs") || self.path.contains("/tests/")
    }

    /// Returns the daemon's module of the file: `api` for `src/api/body.rs`, `main` for `src/main.rs`.
    pub(crate) fn module(&self) -> Option<&str> {
        let rest = self.path.strip_prefix("src/")?;
        Some(rest.split(['/', '.']).next().unwrap_or(rest))
    }

    pub(crate) fn violation(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    /// Returns the lines of code that have `word` as a whole word.
    pub(crate) fn lines_with<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let lines = self.code.lines().enumerate();
        lines
            .filter(move |(_, line)| has_word(line, word))
            .map(|(at, _)| at + 1)
    }
}

pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |char: char| char.is_alphanumeric() || char == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_name)
            && !line[at + word.len()..]
                .starts_with(|next| part_of_name(next) && !word.ends_with(':'))
    })
}

/// Blanks out comments, strings and character literals; line ends stay.
pub(crate) fn bare(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    while let Some(char) = rest.chars().next() {
        let hidden = hidden_length(rest, code.chars().next_back());
        let length = if hidden > 0 { hidden } else { char.len_utf8() };
        let (taken, after) = rest.split_at(length.min(rest.len()));
        if hidden > 0 {
            code.extend(taken.chars().filter(|char| *char == '\n'));
            code.push(' ');
        } else {
            code.push_str(taken);
        }
        rest = after;
    }
    code
}

/// Returns the number of octets of the comment or literal that `rest` begins with; 0 if it begins with code.
fn hidden_length(rest: &str, before: Option<char>) -> usize {
    let in_name = before.is_some_and(|char| char.is_alphanumeric() || char == '_');
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        rest.find("*/").map_or(rest.len(), |end| end + 2)
    } else if rest.starts_with('"') {
        quoted_length(rest, '"')
    } else if rest.starts_with("r\"") || rest.starts_with("r#") || rest.starts_with("br#") {
        if in_name { 0 } else { raw_length(rest) }
    } else if rest.starts_with("'\\") {
        quoted_length(rest, '\'')
    } else if rest.starts_with('\'') {
        let mut chars = rest.char_indices().skip(2);
        chars
            .next()
            .map_or(0, |(at, char)| if char == '\'' { at + 1 } else { 0 })
    } else {
        0
    }
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#` and so on; 0 for a raw identifier.
fn raw_length(rest: &str) -> usize {
    let prefix = rest.find('r').unwrap_or(0) + 1;
    let hashes = rest[prefix..]
        .bytes()
        .take_while(|octet| *octet == b'#')
        .count();
    if !rest[prefix + hashes..].starts_with('"') {
        return 0;
    }

    let end = format!("\"{}", "#".repeat(hashes));
    let start = prefix + hashes + 1;
    rest[start..]
        .find(&end)
        .map_or(rest.len(), |at| start + at + end.len())
}

/// Returns the names that follow `root::` in the code, also inside braces, with their lines.
pub(crate) fn imports<'a>(
    code: &'a str,
    root: &'a str,
) -> impl Iterator<Item = (usize, String)> + 'a {
    let root = format!("{root}::");
    let starts: Vec<_> = code.match_indices(&root).map(|(at, _)| at).collect();
    let length = root.len();

    starts
        .into_iter()
        .filter(move |at| {
            !code[..*at].ends_with(|char: char| {
                char.is_alphanumeric() || char == '_' || char == ':' || char == '$'
            })
        })
        .flat_map(move |at| {
            let line = code[..at].matches('\n').count() + 1;
            first_names(&code[at + length..])
                .into_iter()
                .map(move |name| (line, name))
        })
}

/// `a` of `a::b`; `a` and `c` of `{a::{b, d}, c}`.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|char| char.is_alphanumeric() || *char == '_')
            .collect()
    };
    let Some(inner) = rest.trim_start().strip_prefix('{') else {
        return vec![name(rest)];
    };

    let mut depth = 1;
    let mut names = vec![name(inner)];
    for (at, char) in inner.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(name(&inner[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }

    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn comments_and_literals_are_no_code() {
    for (name, text, expected) in [
        ("comment", "a // b\nc", "a  \nc"),
        ("block comment", "a /* b\nb */ c", "a \n  c"),
        ("string", r#"a("b \" // b") c"#, "a( ) c"),
        ("raw string", "a(r#\"b \" b\"#) c", "a( ) c"),
        ("raw identifier", "r#type x", "r#type x"),
        ("character", "a('\"', '\\'', 'b') c", "a( ,  ,  ) c"),
        ("lifetime", "a<'b>(c: &'b str)", "a<'b>(c: &'b str)"),
    ] {
        assert_eq!(bare(text), expected, "{name}");
    }
}
