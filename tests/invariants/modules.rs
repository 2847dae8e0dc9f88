//! The modules of a crate as a graph: an edge leads from a file to each file whose items its code names.
//!
//! Tests, comments and `mod` lines make no edge. A re-export makes one only where the file uses the name itself; a file that imports the name gets an
//! edge to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, has_word};

/// Edges by node.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

type Path = Vec<String>;

/// Depth to which imports of imports are followed.
const DEEPEST: usize = 16;

/// One file's names and paths.
#[derive(Default)]
struct Module {
    /// Paths that imported names lead to.
    names: BTreeMap<String, Path>,
    /// Paths that its code depends on.
    paths: Vec<Path>,
}

/// The modules below a crate's `src/`, by their paths; the root's path is empty.
pub(crate) struct Crate(BTreeMap<Path, Module>);

impl Crate {
    pub(crate) fn read(sources: &[Source], folder: &str) -> Self {
        let own = sources.iter().filter(|source| source.is_under(folder));
        let shipped = own.filter(|source| !source.is_test() && !source.path.ends_with("/main.rs"));
        let modules = shipped.map(|source| (place(&source.path[folder.len()..]), module(source)));
        Self(modules.collect())
    }

    pub(crate) fn graph(&self) -> Graph {
        let edges = |(from, module): (&Path, &Module)| {
            let to = module.paths.iter();
            let to = to.filter_map(|path| self.resolve(from, path, DEEPEST));
            let others = to.filter(|to| to != from).map(|to| name(&to));
            (name(from), others.collect())
        };
        self.0.iter().map(edges).collect()
    }

    /// Returns the module that defines what `path` names in the module `from`; `None` for what other crates define.
    fn resolve(&self, from: &Path, path: &[String], depth: usize) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let depth = depth.checked_sub(1)?;
        match first.as_str() {
            "crate" => return self.walk(Path::new(), rest, depth),
            "self" => return self.walk(from.clone(), rest, depth),
            "super" => {
                let (_, parent) = from.split_last()?;
                let rest = match rest.first().map(String::as_str) {
                    Some("super") => return self.resolve(&parent.to_vec(), rest, depth),
                    _ => rest,
                };
                return self.walk(parent.to_vec(), rest, depth);
            }
            _ => {}
        }

        let is_known = self.0.contains_key(&child(from, first));
        let is_imported = self.0.get(from)?.names.contains_key(first);
        (is_known || is_imported)
            .then(|| self.walk(from.clone(), path, depth))
            .flatten()
    }

    fn walk(&self, mut at: Path, path: &[String], depth: usize) -> Option<Path> {
        for (place, segment) in path.iter().enumerate() {
            let below = child(&at, segment);
            if self.0.contains_key(&below) {
                at = below;
                continue;
            }
            let imported = self.0.get(&at).and_then(|module| module.names.get(segment));
            return match imported {
                // A macro is re-exported under its own name.
                Some(import) if import.as_slice() == [segment.clone()] => Some(at),
                Some(import) => {
                    let whole = [import, &path[place + 1..]].concat();
                    self.resolve(&at, &whole, depth)
                }
                None => Some(at),
            };
        }

        Some(at)
    }
}

/// Merges each top module of a crate with all that is below it.
pub(crate) fn top(graph: &Graph) -> Graph {
    let first = |name: &String| name.split("::").next().unwrap_or(name).to_owned();
    let mut top = Graph::new();
    for (from, to) in graph {
        let edges = top.entry(first(from)).or_default();
        edges.extend(to.iter().map(first).filter(|to| *to != first(from)));
    }
    top
}

/// Returns the groups of nodes that depend on each other.
pub(crate) fn cycles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|from| (from, reachable(graph, from)))
        .collect();
    let group = |of: &String| -> BTreeSet<String> {
        let others = reached[of].iter().copied();
        let mutual = others.filter(|other| reached.get(other).is_some_and(|to| to.contains(of)));
        mutual.cloned().collect()
    };
    let groups: BTreeSet<_> = graph.keys().map(group).collect();
    groups
        .into_iter()
        .filter(|group| !group.is_empty())
        .collect()
}

fn reachable<'g>(graph: &'g Graph, from: &String) -> BTreeSet<&'g String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = graph[from].iter().collect();
    while let Some(node) = open.pop() {
        if reached.insert(node) {
            open.extend(graph.get(node).into_iter().flatten());
        }
    }
    reached
}

fn name(path: &Path) -> String {
    match path.as_slice() {
        [] => "lib".to_owned(),
        path => path.join("::"),
    }
}

fn child(of: &Path, segment: &str) -> Path {
    let mut path = of.clone();
    path.push(segment.to_owned());
    path
}

/// Returns the module path of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`.
fn place(file: &str) -> Path {
    let file = file.trim_end_matches(".rs");
    let file = file.strip_suffix("/mod").unwrap_or(file);
    match file {
        "lib" => Path::new(),
        file => file.split('/').map(str::to_owned).collect(),
    }
}

fn module(source: &Source) -> Module {
    let mut module = Module::default();
    let mut reexports = Vec::new();
    let mut code = String::new();
    let shipped = without_tests(&source.code);
    let mut lines = shipped.lines();

    while let Some(line) = lines.next() {
        let Some((is_public, tree)) = import(line) else {
            code.push_str(line);
            code.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree.push_str(lines.next().unwrap_or(";"));
        }
        for (path, name) in leaves(tree.trim_end_matches(';')) {
            module.names.insert(name.clone(), path.clone());
            match is_public {
                true => reexports.push((path, name)),
                false => module.paths.push(path),
            }
        }
    }

    let used = |name: &str| code.lines().any(|line| has_word(line, name));
    let own = reexports.into_iter().filter(|(_, name)| used(name));
    module.paths.extend(own.map(|(path, _)| path));
    module.paths.extend(paths(&code));
    module
}

/// Returns the code without what is compiled for tests only.
pub(crate) fn without_tests(code: &str) -> String {
    let mut shipped = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("#[cfg(test)]") {
        shipped.push_str(before);
        rest = &after[item_length(after)..];
    }
    shipped + rest
}

/// Returns the length of the item that the code begins with: up to `;`, or to the brace that closes it.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, char) in code.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns whether the line begins a re-export rather than an import, and its tree.
fn import(line: &str) -> Option<(bool, &str)> {
    let line = line.trim_start();
    if let Some(tree) = line.strip_prefix("use ") {
        return Some((false, tree));
    }
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scoped) => scoped.split_once(')')?.1,
        None => rest,
    };
    Some((true, rest.strip_prefix(" use ")?))
}

/// Returns each path in an import's tree, and the name that it imports.
fn leaves(tree: &str) -> Vec<(Path, String)> {
    let mut found = Vec::new();
    collect(tree, &Path::new(), &mut found);
    found
}

fn collect(tree: &str, prefix: &Path, found: &mut Vec<(Path, String)>) {
    let tree = tree.trim();

    // After the last comma.
    if tree.is_empty() {
        return;
    }

    if let Some((head, inner)) = tree.split_once('{') {
        let prefix = [prefix.as_slice(), &segments(head)].concat();
        let inner = inner.trim_end().trim_end_matches('}');
        // The closing braces of inner trees come off as well: no step below needs them.
        return parts(inner).for_each(|part| collect(part, &prefix, found));
    }

    let (path, alias) = match tree.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim())),
        None => (tree, None),
    };
    let mut path = [prefix.as_slice(), &segments(path)].concat();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(last) = path.last() {
        let name = alias.unwrap_or(last).to_owned();
        found.push((path, name));
    }
}

fn segments(path: &str) -> Path {
    let segments = path.split("::").map(str::trim);
    segments
        .filter(|segment| !segment.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Splits at the commas that no brace encloses.
fn parts(inner: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    inner.split(move |char| {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        char == ',' && depth == 0
    })
}

/// Returns the paths of more than one segment in code that isn't an import.
fn paths(code: &str) -> Vec<Path> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let mut found = Vec::new();
    let mut rest = code;
    let mut before = ' ';

    while let Some(char) = rest.chars().next() {
        let length = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
        if length == 0 {
            before = char;
            rest = &rest[char.len_utf8()..];
            continue;
        }
        // `pub(in a::b)` grants access and uses nothing.
        let is_scope = code[..code.len() - rest.len()].ends_with("pub(in ");
        let begins = before != ':' && before != '.' && !is_scope;
        let mut path = vec![rest[..length].to_owned()];
        before = 'x';
        rest = &rest[length..];
        while let Some(after) = rest.strip_prefix("::") {
            let length = after.find(|char| !is_part(char)).unwrap_or(after.len());
            if length == 0 {
                break;
            }
            path.push(after[..length].to_owned());
            rest = &after[length..];
        }
        if begins && path.len() > 1 {
            found.push(path);
        }
    }

    found
}

#[test]
fn an_edge_leads_to_the_file_that_defines_the_name() {
    let files = [
        (
            "x/src/lib.rs",
            "mod a; mod b; mod c; mod d;\npub use a::{A, inner::Deep as Deeper,};\nuse c::C;\npub struct Root;",
        ),
        (
            "x/src/a/mod.rs",
            "mod inner; pub struct A; fn f() { super::b::g() }",
        ),
        (
            "x/src/a/inner.rs",
            "pub struct Deep; use std::fmt; impl fmt::Debug for Deep {}",
        ),
        (
            "x/src/b.rs",
            "use crate::{Deeper, a::A};\n/// [`crate::c`]\npub fn g() {}\n#[cfg(test)]\nmod tests { use super::super::d::D; }",
        ),
        (
            "x/src/c.rs",
            "pub(in crate::d) struct C; fn f(_: super::Root) {}",
        ),
        (
            "x/src/d.rs",
            "pub struct D;\npub(crate) use crate::b::g;\nfn f() { g() }",
        ),
    ];

    let sources = files.map(|(path, text)| Source::new(path, text));
    let graph = Crate::read(&sources, "x/src/").graph();
    let edges = |from: &str| graph[from].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(edges("lib"), ["c"], "a re-export is no edge");
    assert_eq!(edges("a"), ["b"]);
    assert_eq!(edges("a::inner"), [""; 0]);
    assert_eq!(edges("b"), ["a", "a::inner"]);
    assert_eq!(edges("c"), ["lib"], "the name is defined in the root");
    assert_eq!(
        edges("d"),
        ["b"],
        "what is re-exported is used here as well"
    );

    let found = cycles(&graph);
    let expected = [["a", "b"], ["c", "lib"]];
    assert_eq!(found, expected.map(|names| names.map(str::to_owned).into()));
}
