use std::time::Duration;

use super::interval;

#[test]
fn intervals_are_read_as_delta_writes_them() {
    let day = Duration::from_secs(86_400);
    for (text, expected) in [
        ("interval 30 days", Some(day * 30)),
        ("interval 1 week", Some(day * 7)),
        ("INTERVAL 1 day 12 hours", Some(day + day / 2)),
        ("interval 90 seconds", Some(Duration::from_secs(90))),
        ("2 minutes", Some(Duration::from_secs(120))),
        ("interval 0 days", Some(Duration::ZERO)),
        ("interval 1 month", None),
        ("interval", None),
        ("interval days", None),
        ("interval -1 days", None),
        ("interval 4294967295 weeks 4294967295 weeks", Some(Duration::from_secs(604_800 * 2 * 4_294_967_295))),
    ] {
        assert_eq!(interval(text), expected, "{text}");
    }
}
