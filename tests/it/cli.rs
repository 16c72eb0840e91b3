//! The command line against a server, and without one.

use serde_json::{Value, json};

use crate::kit::{self, Launch, NO_FLUSH, Server, penstock};

const COMMANDS: [&[&str]; 16] = [
    &[],
    &["serve"],
    &["sql"],
    &["tables"],
    &["tables", "list"],
    &["tables", "show"],
    &["tables", "create"],
    &["dead-letters"],
    &["dead-letters", "list"],
    &["dead-letters", "show"],
    &["dead-letters", "replay"],
    &["status"],
    &["flush"],
    &["checkpoint"],
    &["demo"],
    &["bench", "append"],
];

async fn server(dir: &tempfile::TempDir) -> Server {
    Launch::on(dir.path()).set_all(&NO_FLUSH).start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_explains_itself_with_examples() {
    for command in COMMANDS {
        let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let help = penstock(&arguments).await.ok();
        assert!(help.contains("Example") && help.contains("  penstock "), "{arguments:?}:\n{help}");
        assert!(help.contains("Usage: penstock"), "{arguments:?}:\n{help}");
    }
    let version = penstock(&["--version"]).await.ok();
    assert_eq!(version.trim(), format!("penstock {}", env!("CARGO_PKG_VERSION")));
    for wrong in [&["srve"] as &[&str], &["serve", "--set", "no_value"], &["sql", "--format", "xml"], &["flush", "A.B"]]
    {
        let ran = penstock(wrong).await;
        assert_eq!(ran.code, Some(2), "{wrong:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("--help"), "{wrong:?}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_commands_say_so_and_what_to_do() {
    // Nobody listens on port 1.
    let nobody = "http://127.0.0.1:1";
    for command in [
        &["tables", "list", "--url", nobody] as &[&str],
        &["tables", "show", "t", "--url", nobody],
        &["sql", "-c", "select 1", "--url", nobody],
        &["status", "--url", nobody],
        &["flush", "--url", nobody],
        &["checkpoint", "--url", nobody],
    ] {
        let said = penstock(command).await.failed();
        assert!(said.contains(nobody) && said.contains("penstock serve"), "{command:?}: {said}");
    }
    let said = penstock(&["status", "--url", "nonsense"]).await.failed();
    assert!(said.contains("nonsense") && said.contains("http://"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_created_listed_and_shown() {
    let dir = kit::directory();
    let server = server(&dir).await;
    let url = server.url.as_str();
    assert!(penstock(&["tables", "list", "--url", url]).await.ok().contains("no tables"));
    let create = ["tables", "create", "logs.web", "--column", "at:timestamp!", "--column", "host:string", "--column"];
    let rest = [
        "tags:map<string,string>",
        "--event-time",
        "at",
        "--event-time-unit",
        "ms",
        "--bucket",
        "15m",
        "--sort",
        "host",
    ];
    let create: Vec<&str> = create.into_iter().chain(rest).chain(["--url", url]).collect();
    assert!(penstock(&create).await.ok().starts_with("created logs.web"));
    assert!(penstock(&create).await.ok().contains("already"), "once more is fine");
    let other = ["tables", "create", "logs.web", "--column", "at:timestamp!", "--url", url];
    let said = penstock(&other).await.failed();
    assert!(said.contains("another definition") && said.contains("help: "), "{said}");
    server.append("logs.web", [json!({ "at": 1_772_317_800_123_u64, "host": "a", "tags": { "k": "v" } })]).await;
    let list = penstock(&["tables", "list", "--url", url]).await.ok();
    assert!(list.contains("logs.web") && list.contains("15m"), "{list}");
    let show = penstock(&["tables", "show", "logs.web", "--url", url]).await.ok();
    for word in ["logs.web", "file:///", "map<string,string>", "numbers count ms", "1 rows", "host"] {
        assert!(show.contains(word), "should show {word}:\n{show}");
    }
    let said = penstock(&["tables", "show", "nope", "--url", url]).await.failed();
    assert!(said.contains("nope") && said.contains("help: "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_answers_in_every_format() {
    let dir = kit::directory();
    let server = server(&dir).await;
    let row =
        |id: u64| json!({ "ts": "2026-04-01T10:00:00Z", "id": id, "name": format!("n,{id}"), "tags": { "k": id } });
    server.append("t", (0..3).map(row)).await;
    let ask = async |sql: &str, more: &[&str]| {
        let arguments: Vec<&str> =
            ["sql", "-c", sql, "--url", &server.url].into_iter().chain(more.iter().copied()).collect();
        penstock(&arguments).await
    };
    let sql = "select id, name from t order by id";
    let wanted = json!([{ "id": 0, "name": "n,0" }, { "id": 1, "name": "n,1" }, { "id": 2, "name": "n,2" }]);
    let table = ask(sql, &[]).await;
    assert!(table.stderr.contains("3 rows"), "{}", table.stderr);
    let table = table.ok();
    assert!(["id", "name", "n,0", "n,2"].iter().all(|word| table.contains(word)), "{table}");
    assert_eq!(ask(sql, &["--format", "csv"]).await.ok(), "id,name\n0,\"n,0\"\n1,\"n,1\"\n2,\"n,2\"\n");
    let json: Value = serde_json::from_str(&ask(sql, &["--format", "json"]).await.ok()).expect("should be JSON");
    assert_eq!(json, wanted);
    let lines = ask(sql, &["--format", "ndjson"]).await.ok();
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("should be JSON")).collect();
    assert_eq!(Value::from(lines), wanted);
    let nested = ask("select id, tags from t where id = 1", &["--format", "csv"]).await.ok();
    assert!(nested.starts_with("id,tags\n1,"), "{nested}");
    let two = ask("select 1 as a; select 2 as b", &["--format", "csv"]).await.ok();
    assert_eq!(two, "a\n1\nb\n2\n");
    assert!(ask("show tables", &[]).await.ok().contains('t'));
    let said = ask("select nope from t", &[]).await.failed();
    assert!(said.contains("nope"), "{said}");
    let said = ask("drop table t", &[]).await.failed();
    assert!(said.contains("read"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_flush_tell_what_is_where() {
    let dir = kit::directory();
    let server = server(&dir).await;
    let url = server.url.as_str();
    server.append("a", [json!({ "ts": "2026-04-01T10:00:00Z", "id": 1 })]).await;
    server.append("b", (0..2).map(|id| json!({ "ts": "2026-04-01T10:00:00Z", "id": id }))).await;
    let before = penstock(&["status", "--url", url]).await.ok();
    for word in ["ready", "default.a", "default.b", "3 rows", "file:///"] {
        assert!(before.contains(word), "should show {word}:\n{before}");
    }
    let one = penstock(&["flush", "b", "--url", url]).await.ok();
    assert!(one.contains("default.b") && !one.contains("default.a"), "{one}");
    let all = penstock(&["flush", "--url", url, "--timeout", "20s"]).await.ok();
    assert!(all.contains("default.a") && all.contains("default.b"), "{all}");
    let text = penstock(&["status", "--json", "--url", url]).await.ok();
    let status: Value = serde_json::from_str(&text).expect("should be JSON");
    assert_eq!(status["store"]["unflushed_rows"], 0, "{status}");
    assert_eq!(status["ready"], true);
    for pointer in ["/node", "/incarnation", "/version", "/lake_url", "/store/shards/0/durable_lsn", "/store/syncs"] {
        assert!(status.pointer(pointer).is_some_and(|v| !v.is_null()), "{pointer} in {status}");
    }
    for pointer in ["/process/resident_bytes", "/store/groups", "/store/written_bytes", "/admission/limit_bytes"] {
        assert!(status.pointer(pointer).and_then(Value::as_u64) > Some(0), "{pointer} in {status}");
    }
    assert!(status["tables"][1]["delta_version"].is_u64(), "{status}");
    let said = penstock(&["flush", "nope", "--url", url]).await.failed();
    assert!(said.contains("nope"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_ends_well_and_says_that_counts_agree() {
    let dir = kit::directory();
    let data = dir.path().join("demo");
    let said = penstock(&["demo", "--seconds", "2", "--data-dir", &data.display().to_string()]).await.ok();
    for word in ["rows acknowledged", "ack latency", "p99", "equal", "counts agree", "busiest processes", "DeltaTable("]
    {
        assert!(said.contains(word), "should say {word}:\n{said}");
    }
    assert!(!said.contains("DIFFERENT"), "{said}");
    assert!(data.join("lake/demo").is_dir());
    let again = penstock(&["demo", "--seconds", "1", "--data-dir", &data.display().to_string()]).await.failed();
    assert!(again.contains("not empty"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_measurement_gives_figures_that_fit_together() {
    let arguments =
        ["bench", "append", "--seconds", "1", "--warm-up", "0", "--connections", "4", "--rows", "50", "--json"];
    let report: Value = serde_json::from_str(&penstock(&arguments).await.ok()).expect("should be JSON");
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!((number("connections"), number("rows_per_post")), (4.0, 50.0));
    assert_eq!(number("rows"), number("posts") * 50.0, "{report}");
    assert!(number("posts") >= 1.0 && (0.9..20.0).contains(&number("seconds")), "{report}");
    let rate = number("rows") / number("seconds");
    assert!((number("rows_per_second") / rate - 1.0).abs() < 0.01, "{report}");
    assert!(number("cpu_seconds_per_million_rows") > 0.0 && number("written_per_payload_byte") >= 1.0, "{report}");
    let ack = |name: &str| report["ack"][name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    let order = [ack("p50_us"), ack("p90_us"), ack("p99_us"), ack("p999_us"), ack("max_us")];
    assert!(order.is_sorted() && order[0] > 0, "{report}");
}
