use serde_json::json;

use super::*;
use crate::engine::explain::Next;

#[test]
fn settings_are_shown_with_who_set_them_and_what_is_kept() {
    let tuning: Tuning = serde_json::from_value(json!({
        "file": "data/tuning.toml",
        "settings": [
            { "key": "flush.parallelism", "value": 16, "source": "running", "kept": 8, "allowed": "a whole number from 1 to 1024",
              "what": "how many" },
            { "key": "flush.max_age", "value": "1m", "source": "default", "kept": null, "allowed": "a time", "what": "how old" },
        ],
    }))
    .expect("should be read");
    let text = render(&tuning);
    let line =
        |key: &str| text.lines().find(|line| line.contains(key)).unwrap_or_else(|| panic!("{key}: {text}")).to_owned();
    let (first, second) = (line("flush.parallelism"), line("flush.max_age"));
    assert!(
        first.contains("16") && first.contains("change") && first.contains("8") && first.contains("how many"),
        "{first}"
    );
    assert!(second.contains("1m") && second.contains("default"), "{second}");
    assert!(text.contains("kept for later starts in data/tuning.toml"), "{text}");
}

#[test]
fn a_change_says_what_it_was_for_how_long_it_holds_and_what_overrules_it() {
    let mut tuned: Tuned = serde_json::from_value(json!({
        "changed": [{ "key": "flush.memory", "old": "256MiB", "new": "1GiB" }], "kept": false, "notes": [],
    }))
    .expect("should be read");
    assert_eq!(render_change(&tuned), "flush.memory: 256MiB -> 1GiB\nuntil the next start; --persist keeps it\n");
    tuned.changed.clear();
    tuned.kept = true;
    tuned.notes.push("the command line wins".to_owned());
    let text = render_change(&tuned);
    assert_eq!(text, "no setting has another value\nkept for later starts\nnote: the command line wins\n");
}

#[test]
fn an_explanation_names_what_binds_and_the_next_setting() {
    let next = Next {
        key: "flush.parallelism".to_owned(),
        from: "4".to_owned(),
        to: "8".to_owned(),
        live: true,
        effect: "about twice as much".to_owned(),
        ..Next::default()
    };
    let flush = Finding { binds: Bind::UploadLatency, because: "10 wait".to_owned(), next: Some(next.clone()) };
    let mut explanation = Explanation { flush, ..Explanation::default() };
    explanation.measured.records_per_second = 1_234.0;
    let text = render_explanation(&explanation);
    assert!(text.starts_with("acks are bound by nothing\n"), "{text}");
    assert!(text.contains("the flush is bound by the latency of uploads\n  10 wait\n"), "{text}");
    assert!(text.contains("next: flush.parallelism from 4 to 8 (penstock tune): about twice as much"), "{text}");
    assert!(text.contains("1,234 records/s"), "{text}");
    explanation.flush.next = Some(Next { live: false, ..next });
    assert!(render_explanation(&explanation).contains("(takes a restart)"));
    explanation.flush.next = None;
    assert!(render_explanation(&explanation).contains("no setting changes that"));
}
