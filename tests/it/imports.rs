//! Who may import whom. The table here is the one in the head of `src/lib.rs`; a use of anything else is a knot that has to be
//! talked about first.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The package below `src/store`, as the other modules name it.
const STORE: &str = "penstock_store";

/// Each module of the root package, and what it may use beside itself. Tests are free.
const ALLOWED: [(&str, &[&str]); 14] = [
    ("schema", &[STORE]),
    ("catalog", &["schema", STORE]),
    ("admission", &[STORE]),
    ("lake", &["schema", "failpoint", STORE]),
    ("ingest", &["schema", "catalog", "admission", "failpoint", STORE]),
    ("flush", &["schema", "lake", "failpoint", STORE]),
    ("query", &["schema", "lake", STORE]),
    ("config", &["admission", "flush", "ingest", "lake", "query", STORE]),
    ("engine", &["admission", "catalog", "config", "flush", "ingest", "lake", "query", "schema", "telemetry", STORE]),
    // Besides what it drives: the errors of every stage, which it turns into replies, and table names.
    ("server", &["engine", "ingest", "query", "admission", "catalog", "flush", "lake", "schema", "telemetry", STORE]),
    ("cli", &["config", "engine", "schema", "server", STORE]),
    ("telemetry", &[]),
    ("failpoint", &[]),
    ("lib", &[]),
];

/// One use of something of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    line: usize,
    module: String,
}

/// What a source text uses of the root package and of the store, comments aside.
fn uses(text: &str) -> Vec<Use> {
    let mut found = Vec::new();
    let mut push = |line: usize, module: &str| found.push(Use { line, module: module.to_owned() });
    for (line, code) in text.lines().enumerate().map(|(i, l)| (i + 1, l.split("//").next().unwrap_or(""))) {
        for (at, _) in code.match_indices("crate::") {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &code[at + "crate::".len()..];
            match rest.strip_prefix('{') {
                Some(group) => heads(group).iter().for_each(|head| push(line, head)),
                None => push(line, &word(rest)),
            }
        }
        for (at, _) in code.match_indices(STORE) {
            let around = (code[..at].chars().next_back(), code[at + STORE.len()..].chars().next());
            let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"' || c == '=');
            if !part(around.0) && !part(around.1) {
                push(line, STORE);
            }
        }
        for name in ["penstock::", "super::super::super::super::"] {
            if code.contains(name) {
                push(line, name);
            }
        }
    }
    found
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The first words of a `{a::b, c}` group, nested groups aside.
fn heads(group: &str) -> Vec<String> {
    let (mut heads, mut depth, mut at_head) = (Vec::new(), 0_i32, true);
    for (i, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            c if at_head && (c.is_alphabetic() || c == '_') => {
                heads.push(word(&group[i..]));
                at_head = false;
            }
            _ => {}
        }
    }
    heads
}

/// The uses of a module that its row does not allow.
fn violations(module: &str, text: &str) -> Vec<Use> {
    let allowed = ALLOWED.iter().find(|(name, _)| *name == module).map_or(&[] as &[&str], |(_, allowed)| allowed);
    uses(text).into_iter().filter(|u| u.module != module && !allowed.contains(&u.module.as_str())).collect()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file but tests, with its path below `src`.
fn sources(dir: &Path) -> BTreeMap<String, String> {
    let is_test = |path: &str| path.split('/').any(|part| part == "tests" || part == "tests.rs" || part == "stub.rs");
    let name = |path: &Path| path.strip_prefix(source()).expect("should be below src").display().to_string();
    crate::kit::files(dir)
        .into_iter()
        .map(|(path, bytes)| (name(&path), bytes))
        .filter(|(path, _)| path.ends_with(".rs") && !is_test(path))
        .map(|(path, bytes)| (path, String::from_utf8(bytes).expect("should be UTF-8")))
        .collect()
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let mut wrong = Vec::new();
    for (path, text) in sources(&source()) {
        let module = path.split(['/', '.']).next().unwrap_or_default();
        if module == "store" || path == "main.rs" {
            continue;
        }
        assert!(ALLOWED.iter().any(|(name, _)| *name == module), "{path} belongs to no module of the table");
        for Use { line, module: used } in violations(module, &text) {
            wrong.push(format!("src/{path}:{line}: {module} may not use {used}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_store_knows_nothing_of_the_root_package() {
    for (path, text) in sources(&source().join("store")) {
        for (at, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let names = |name: &str| code.contains(&format!("use {name}")) || code.contains(&format!(" {name}::"));
            assert!(
                !["penstock", "arrow", "datafusion", "deltalake", "parquet"].into_iter().any(names),
                "src/{path}:{}: {line}",
                at + 1
            );
        }
    }
    let manifest = fs::read_to_string(source().join("store/Cargo.toml")).expect("should have a manifest");
    for word in ["penstock ", "penstock=", "arrow", "datafusion", "deltalake", "parquet"] {
        assert!(
            !manifest.lines().any(|l| !l.starts_with('#') && l.starts_with(word)),
            "src/store/Cargo.toml has {word}"
        );
    }
}

#[test]
fn the_map_in_lib_rs_has_a_row_for_every_module() {
    let map = fs::read_to_string(source().join("lib.rs")).expect("should have a lib.rs");
    let declared: Vec<String> = map.lines().filter_map(|l| l.strip_prefix("pub mod ")).map(word).collect();
    for (module, _) in ALLOWED.iter().filter(|(module, _)| *module != "lib") {
        assert!(declared.iter().any(|d| d == module), "the table here has {module}, src/lib.rs does not declare it");
    }
    for module in &declared {
        assert!(map.contains(&format!("//! | [`{module}`]")), "src/lib.rs has no row for {module}");
        assert!(ALLOWED.iter().any(|(name, _)| name == module), "the table here has no row for {module}");
    }
}

#[test]
fn the_check_notices_what_is_not_allowed() {
    let found = |module: &str, text: &str| violations(module, text).into_iter().map(|u| u.module).collect::<Vec<_>>();
    assert_eq!(found("schema", "use crate::lake::Lake;"), ["lake"]);
    assert_eq!(found("lake", "    let x = crate::flush::Options::default();"), ["flush"]);
    assert_eq!(found("flush", "use crate::{lake, query, schema::{TableName, engine}};"), ["query"]);
    assert_eq!(found("admission", "use crate::lake::Lake;"), ["lake"]);
    assert_eq!(found("telemetry", "pub fn f() -> penstock_store::Lsn { todo() }"), [STORE]);
    assert_eq!(found("query", "use penstock::server::Server;"), ["penstock::"]);
    assert_eq!(violations("ingest", "\n\nuse crate::server::x;")[0].line, 3);
    assert!(found("schema", "// use crate::lake::Lake;").is_empty());
    assert!(found("schema", "use crate::schema::TableName;\nuse penstock_store::TableId;").is_empty());
    assert!(found("admission", "const FILTER: &str = \"penstock_store=info\";").is_empty());
}
