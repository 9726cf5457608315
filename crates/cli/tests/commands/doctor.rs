//! `ringwise doctor` as a user runs it.

use crate::harness::conform;

use std::process::{Command, Output};

use conform::conform;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringwise")).arg("doctor").args(arguments).output().unwrap()
}

#[test]
fn a_line_for_each_finding() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = doctor(&[directory.path().to_str().unwrap()]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("remedy: "));
    for line in lines {
        let status = line.split_whitespace().next().unwrap();
        assert!(["ok", "limited", "blocked", "unknown"].contains(&status), "{line}");
    }
    assert!(text.contains("io_uring.setup") && !text.contains('\x1b'));
}

#[test]
fn json_is_what_the_schema_says() {
    let output = doctor(&["--json", env!("CARGO_TARGET_TMPDIR")]);
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = include_str!("../../../../docs/reference/schema/doctor-1.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    conform(&report, &schema, &schema, "report");
}

#[test]
fn the_seccomp_profile_allows_three_syscalls() {
    let output = doctor(&["--seccomp-profile"]);
    assert!(output.status.success());
    let profile: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules = profile["syscalls"].as_array().unwrap();
    let mut registered = Vec::new();
    for rule in rules {
        assert_eq!(rule["action"], "SCMP_ACT_ALLOW");
        assert!(rule["comment"].is_string());
        match rule["names"].as_array().unwrap().as_slice() {
            [name] if name == "io_uring_register" => {
                let [argument] = rule["args"].as_array().unwrap().as_slice() else {
                    panic!("{rule}")
                };
                assert_eq!(
                    (&argument["index"], &argument["op"]),
                    (&1.into(), &"SCMP_CMP_EQ".into())
                );
                registered.push(argument["value"].as_u64().unwrap());
            }
            names => assert_eq!(names, ["io_uring_setup", "io_uring_enter"]),
        }
    }
    assert_eq!(rules.len(), registered.len() + 1);
    assert!(registered.contains(&11) && registered.is_sorted(), "{registered:?}");
    assert_eq!(doctor(&["--seccomp-profile=any"]).stdout, output.stdout);
    let both = doctor(&["--seccomp-profile", "--json"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn the_seccomp_profile_is_for_a_program() {
    let rules = |program: &str| {
        let output = doctor(&[&format!("--seccomp-profile={program}")]);
        assert!(output.status.success());
        let profile: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        profile["syscalls"].as_array().unwrap().clone()
    };
    let (any, sealed) = (rules("any"), rules("sealed"));
    assert!(sealed.len() < any.len() && sealed.iter().all(|rule| any.contains(rule)));

    let unknown = doctor(&["--seccomp-profile=seald"]);
    assert_eq!((unknown.status.code(), unknown.stdout.len()), (Some(2), 0));
    let told = String::from_utf8(unknown.stderr).unwrap();
    let expected = "--seccomp-profile: invalid value 'seald': did you mean 'sealed'?";
    assert_eq!(told, format!("ringwise: doctor: {expected}\n"));
}

#[test]
fn a_missing_path_is_one_line_and_status_1() {
    let output = doctor(&["/no/such/place"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("ringwise: doctor: /no/such/place: No such file"), "{told}");
    assert_eq!(told.lines().count(), 1);
}

#[test]
fn a_wrong_flag_is_one_line_and_status_2() {
    let output = doctor(&["--jsno"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}
