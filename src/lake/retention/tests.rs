use super::*;

#[test]
fn intervals_as_writers_of_delta_spell_them() {
    let hours = |count: u64| Some(Duration::from_secs(count * 3_600));
    for (text, expected) in [
        ("interval 30 days", hours(720)),
        ("INTERVAL 1 Week", hours(168)),
        ("1 day 12 hours", hours(36)),
        ("interval 90 minutes", Some(Duration::from_secs(5_400))),
        ("interval 0 seconds", Some(Duration::ZERO)),
        ("interval", None),
        ("", None),
        ("interval days", None),
        ("interval 1 month", None),
        ("interval -1 day", None),
        ("30", None),
        ("interval 4294967295 weeks 4294967295 weeks", Some(Duration::from_secs(604_800 * 2 * 4_294_967_295))),
    ] {
        assert_eq!(interval(text), expected, "{text:?}");
    }
}

fn set(name: &str, value: &str) -> Properties {
    Properties::from([(name.to_owned(), Some(value.to_owned()))])
}

#[test]
fn settings_that_could_cost_rows_are_named() {
    assert_eq!(log(&Properties::new()), Ok(LogRetention { keep: DEFAULT_LOG, clean_up: true }));
    let off = set(CLEAN_UP, "FALSE");
    assert_eq!(log(&off), Ok(LogRetention { keep: DEFAULT_LOG, clean_up: false }));
    let week = set(LOG, "interval 1 week");
    assert_eq!(log(&week).expect("should be fine").keep, Duration::from_secs(7 * 86_400));
    assert_eq!(check(&week), Ok(()));
    for (name, value) in [(TRANSACTIONS, "interval 99 weeks"), (LOG, "soon")] {
        let refused = check(&set(name, value)).expect_err("should be refused");
        assert_eq!((refused.property, refused.value.as_str()), (name, value));
    }
}

#[test]
fn entries_have_to_live_well_longer_than_a_head_is_believed() {
    let seconds = Duration::from_secs;
    let check = |value: &str| check_log("here", &set(LOG, value), seconds(60), seconds(120));
    assert!(check("interval 30 minutes").is_ok());
    for short in ["interval 29 minutes", "soon"] {
        let error = check(short).expect_err("should be refused");
        assert!(matches!(error, Error::LogRetention { least, .. } if least == seconds(1_800)), "{error}");
    }
    assert!(check_log("here", &Properties::new(), seconds(60), seconds(120)).is_ok());
}
