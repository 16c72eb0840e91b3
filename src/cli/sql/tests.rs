use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::execute;
use super::meta::{Meta, MetaError};
use super::output::{Format, Printer, Rows};
use super::repl::{history_path, prepare};
use super::split::{is_blank, split};
use crate::cli::client::Client;
use crate::cli::stub::{Stub, sample_batch};

#[test]
fn statements_end_at_semicolons_in_code() {
    assert_eq!(split("select 1; select 2;"), (vec!["select 1", "select 2"], ""));
    assert_eq!(split("select 1;\n select 2"), (vec!["select 1"], "\n select 2"));
    assert_eq!(split(""), (vec![], ""));
    assert_eq!(split(";;  ;\n"), (vec![], "\n"));
}

#[test]
fn semicolons_in_quotes_and_comments_are_text() {
    for whole in [
        "select 'a;b'",
        "select 'it''s; fine'",
        "select \"odd;name\"",
        "select \"a\"\"b;c\"",
        "select 1 -- not; here\n + 1",
        "select 1 /* nor; here */",
        "select 1 /* a /* nested; one */ still; */",
        "select '--', 1",
        "select '/*;', 1",
    ] {
        let text = format!("{whole}; select 2");
        assert_eq!(split(&text), (vec![whole], " select 2"), "{whole}");
    }
}

#[test]
fn what_is_open_stays_open() {
    for open in ["select 'a;", "select \"a;", "select /* a;", "select /* /* */ ;", "select 1 -- a;"] {
        assert_eq!(split(open), (vec![], open));
        assert!(!is_blank(open), "{open}");
    }
}

#[test]
fn comments_alone_are_nothing_to_run() {
    assert!(is_blank(" -- a\n /* b; */ \t"));
    assert_eq!(split("-- a\n; /* b */ ; select 1;"), (vec!["select 1"], ""));
    assert!(!is_blank("- 1"));
    // An apostrophe in a comment opens nothing.
    assert_eq!(split("-- it's\nselect 1; select 2;").0, ["-- it's\nselect 1", "select 2"]);
}

#[test]
fn positions_are_right_behind_text_of_many_bytes() {
    assert_eq!(split("select 'ü;€'; select '😀'"), (vec!["select 'ü;€'"], " select '😀'"));
}

#[test]
fn backslash_commands_are_read() {
    assert_eq!(Meta::parse("\\q"), Ok(Meta::Quit));
    assert_eq!(Meta::parse(" \\d ; "), Ok(Meta::Tables));
    assert_eq!(Meta::parse("\\d demo.cpu;"), Ok(Meta::Describe("demo.cpu".parse().unwrap())));
    assert_eq!(Meta::parse("\\timing"), Ok(Meta::Timing));
    assert_eq!(Meta::parse("\\format CSV"), Ok(Meta::Format(Format::Csv)));
    assert_eq!(Meta::parse("\\format"), Err(MetaError::Format));
    assert_eq!(Meta::parse("\\format xml"), Err(MetaError::Format));
    assert_eq!(Meta::parse("\\?"), Ok(Meta::Help));
    assert_eq!(Meta::parse("\\x"), Err(MetaError::Unknown("\\x".to_owned())));
    assert!(matches!(Meta::parse("\\d a;drop"), Err(MetaError::Table(_))));
}

fn printed(format: Format, max_rows: usize, batches: usize) -> (String, Rows) {
    let mut out = Vec::new();
    let mut printer = Printer::new(format, max_rows);
    for _ in 0..batches {
        printer.batch(&sample_batch(), &mut out).unwrap();
    }
    let rows = printer.finish(&sample_batch().schema(), &mut out).unwrap();
    (String::from_utf8(out).unwrap(), rows)
}

#[test]
fn csv_has_one_header_and_nested_values_as_text() {
    let rows = "1,\"a,\u{1b}[31m\",\"[1, 2]\"\n22,,\n";
    assert_eq!(printed(Format::Csv, 1, 2).0, format!("n,name,list\n{rows}{rows}"));
    assert_eq!(printed(Format::Csv, 1, 0).0, "n,name,list\n");
}

#[test]
fn json_shows_nulls() {
    let rows = [r#"{"n":1,"name":"a,\u001b[31m","list":[1,2]}"#, r#"{"n":22,"name":null,"list":null}"#];
    let (text, counted) = printed(Format::Ndjson, 1, 1);
    assert_eq!(text, format!("{}\n{}\n", rows[0], rows[1]));
    assert_eq!(counted, Rows { total: 2, shown: 2 });
    assert_eq!(printed(Format::Ndjson, 1, 0).0, "");
    let (text, _) = printed(Format::Json, 1, 2);
    let parsed: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(parsed.len(), 4);
    assert_eq!(printed(Format::Json, 1, 0).0, "[]\n");
}

#[test]
fn the_table_is_bounded_and_safe() {
    let (text, rows) = printed(Format::Table, 3, 2);
    assert_eq!(rows, Rows { total: 4, shown: 3 });
    assert_eq!(text.lines().count(), 3 + 3 + 1, "{text}");
    assert!(text.contains("NULL") && text.contains("[1, 2]") && text.contains("a,\\u{1b}[31m"), "{text}");
    assert!(!text.contains('\u{1b}'));
    let (text, rows) = printed(Format::Table, 3, 0);
    assert_eq!(rows, Rows::default());
    assert!(text.contains("name"), "{text}");
}

#[test]
fn numbers_stand_at_the_right() {
    let (text, _) = printed(Format::Table, 10, 1);
    assert!(text.contains("│  1 ┆ a,"), "{text}");
}

#[tokio::test]
async fn a_statement_runs_and_is_summed_up() {
    let stub = Stub::start().await;
    let client = Client::new(&stub.url()).unwrap();
    let mut out = Vec::new();
    let summary = execute(&client, "select x", Format::Ndjson, 10, &mut out).await.unwrap();
    assert!(summary.starts_with("4 rows ("), "{summary}");
    assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 4);
    let summary = execute(&client, "select x", Format::Table, 1, &mut out).await.unwrap();
    assert!(summary.starts_with("4 rows, 3 of them not shown"), "{summary}");
    let error = execute(&client, "selct x", Format::Table, 1, &mut out).await.unwrap_err();
    assert_eq!(error.to_string(), "expected a statement, found selct");
    assert_eq!(error.help().as_deref(), Some("SQL is read only"));
}

#[test]
fn the_history_lies_where_state_belongs() {
    let with = |state: Option<&str>, home: Option<&str>| {
        let (state, home) = (state.map(PathBuf::from), home.map(PathBuf::from));
        history_path(move |name| if name == "HOME" { home.clone() } else { state.clone() })
    };
    assert_eq!(with(Some("/s"), Some("/h")), Some("/s/penstock/history".into()));
    assert_eq!(with(Some("relative"), Some("/h")), Some("/h/.local/state/penstock/history".into()));
    assert_eq!(with(None, None), None);
}

#[test]
fn the_history_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("penstock").join("history");
    prepare(&path).unwrap();
    prepare(&path).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let mut editor = rustyline::DefaultEditor::new().unwrap();
    editor.add_history_entry("select\n1;").unwrap();
    editor.save_history(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    let mut again = rustyline::DefaultEditor::new().unwrap();
    again.load_history(&path).unwrap();
    use rustyline::history::History;
    assert_eq!(Arc::new(again).history().len(), 1);
}
