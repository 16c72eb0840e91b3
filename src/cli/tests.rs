use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::latency::Latencies;
use super::{Cli, Command, show};

#[test]
fn the_command_line_is_consistent_and_every_command_teaches() {
    let mut command = Cli::command();
    command.clone().debug_assert();
    command.build();
    let mut queue: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    let mut seen = 0;
    while let Some(command) = queue.pop() {
        assert!(command.get_about().is_some(), "{} has no about", command.get_name());
        if command.has_subcommands() {
            queue.extend(command.get_subcommands().cloned());
        } else {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
            let plain = ["list", "show"].contains(&command.get_name());
            assert!(plain || command.get_long_about().is_some(), "{} says no more than its name", command.get_name());
        }
        seen += 1;
    }
    assert!(seen >= 11, "only {seen} commands");
}

#[test]
fn examples_of_the_help_are_commands() {
    fn examples(command: &clap::Command, into: &mut Vec<String>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let help = help.replace("\\\n", " ");
        into.extend(help.lines().map(str::trim).filter(|l| l.starts_with("penstock ")).map(str::to_owned));
        command.get_subcommands().for_each(|sub| examples(sub, into));
    }
    let mut lines = Vec::new();
    examples(&Cli::command(), &mut lines);
    assert!(lines.len() >= 20, "only {} examples", lines.len());
    for line in lines {
        // What follows two spaces explains; what follows a `|`, `<` or `>` is the shell's.
        let example = line.split("  ").find(|part| part.starts_with("penstock")).unwrap();
        let example = if line.contains("create") { line.as_str() } else { example };
        if let Err(error) = Cli::try_parse_from(words(example)) {
            panic!("{example}: {error}");
        }
    }
}

/// Splits as a shell would, as far as the examples need it; redirections end the command.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            '|' | '<' | '>' if !quoted => break,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn settings_keep_everything_behind_the_first_equals_sign() {
    let cli = Cli::try_parse_from(["penstock", "serve", "--set", "lake.url=s3://b/?a=b", "--set", "x=1"]).unwrap();
    let Command::Serve(args) = cli.command else { panic!("not serve") };
    assert_eq!(args.settings, [("lake.url".into(), "s3://b/?a=b".into()), ("x".into(), "1".into())]);
    assert!(Cli::try_parse_from(["penstock", "serve", "--set", "=1"]).is_err());
    assert!(Cli::try_parse_from(["penstock", "serve", "--set", "key"]).is_err());
}

#[test]
fn figures_read_well() {
    assert_eq!(show::count(0), "0");
    assert_eq!(show::count(999), "999");
    assert_eq!(show::count(1_000), "1,000");
    assert_eq!(show::count(1_234_567), "1,234,567");
    assert_eq!(show::rate(1234.6), "1,235");
    assert_eq!(show::rate(f64::NAN), "-");
    assert_eq!(show::bytes(1_536), "1.5 KiB");
    assert_eq!(show::micros(999), "999 us");
    assert_eq!(show::micros(1_500), "1.50 ms");
    assert_eq!(show::micros(2_000_000), "2.00 s");
    assert_eq!(show::uptime(3_723), "1h 2m 3s");
    assert_eq!(show::optional(Some(3)), "3");
    assert_eq!(show::optional(None::<u64>), "-");
}

#[test]
fn stored_text_cannot_command_the_terminal() {
    assert_eq!(show::plain("Grüße"), "Grüße");
    assert_eq!(show::plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    // A C1 control character is one too.
    assert_eq!(show::plain("\u{9b}2J"), "\\u{9b}2J");
}

#[test]
fn percentiles_are_those_of_all_tasks() {
    let (mut one, mut other) = (Latencies::default(), Latencies::default());
    assert_eq!(one.percentiles().max_us, 0);
    (1..=500).for_each(|ms| one.record(Duration::from_millis(ms)));
    (501..=1_000).for_each(|ms| other.record(Duration::from_millis(ms)));
    one.merge(&other);
    let found = one.percentiles();
    assert_eq!(found.count, 1_000);
    for (value, ms) in [(found.p50_us, 500), (found.p90_us, 900), (found.p99_us, 990), (found.p999_us, 999)] {
        let expected = ms * 1_000;
        assert!(value.abs_diff(expected) <= expected / 500, "{value} is not {expected}");
    }
    assert!(found.max_us >= 1_000_000);
    // Beyond the range it counts as the longest time, and is not lost.
    one.record(Duration::from_secs(100_000));
    assert_eq!(one.percentiles().count, 1_001);
}
