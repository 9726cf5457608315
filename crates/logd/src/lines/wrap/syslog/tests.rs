//! Lines as senders write them, and lines that only look like syslog.

use serde_json::{Value, json};

use super::*;

/// The fields, with the text as `text`.
fn fields(line: &[u8]) -> Value {
    let mut out = b"{".to_vec();
    let text = write_fields(line, &mut out);
    out.extend_from_slice(b"\"text\":");
    quote(&String::from_utf8_lossy(text), &mut out);
    out.push(b'}');
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn the_examples_of_rfc_5424() {
    let line = "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \u{feff}'su root' failed for \
                lonvick on /dev/pts/8";
    assert_eq!(
        fields(line.as_bytes()),
        json!({
            "facility": "auth", "severity": "crit", "timestamp": "2003-10-11T22:14:15.003Z",
            "host": "mymachine.example.com", "app_name": "su", "msgid": "ID47",
            "text": "'su root' failed for lonvick on /dev/pts/8",
        })
    );
    let line = b"<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time";
    assert_eq!(
        fields(line),
        json!({
            "facility": "local4", "severity": "notice", "timestamp": "2003-08-24T05:14:15.000003-07:00",
            "host": "192.0.2.1", "app_name": "myproc", "procid": "8710", "text": "%% It's time",
        })
    );
    let line = br#"<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 [exampleSDID@32473 iut="3" eventSource="Application"][examplePriority@32473 class="high"]"#;
    assert_eq!(
        fields(line),
        json!({
            "facility": "local4", "severity": "notice", "timestamp": "2003-10-11T22:14:15.003Z", "host": "h",
            "app_name": "evntslog", "msgid": "ID47", "text": "",
            "structured_data": {
                "exampleSDID@32473": {"iut": "3", "eventSource": "Application"},
                "examplePriority@32473": {"class": "high"},
            },
        })
    );
    // Nothing is known.
    assert_eq!(
        fields(b"<0>1 - - - - - -"),
        json!({"facility": "kern", "severity": "emerg", "text": ""})
    );
}

#[test]
fn values_are_unescaped_and_may_come_several_times() {
    let line = br#"<13>1 - h a - - [x ip="1" ip="2" q="\"\\\]" b="\n\"" e="\u00e9]"] text"#;
    assert_eq!(
        fields(line)["structured_data"],
        json!({"x": {"ip": ["1", "2"], "q": "\"\\]", "b": "\\n\"", "e": "\\u00e9]"}})
    );
}

#[test]
fn the_forms_that_senders_make_of_rfc_3164() {
    let own = |line: &str| {
        let mut fields = fields(line.as_bytes());
        let mut take = |name| fields[name].take().as_str().unwrap_or("").to_owned();
        [take("timestamp"), take("host"), take("app_name"), take("procid"), take("text")]
    };
    assert_eq!(
        own("<34>Oct 11 22:14:15 mymachine su: 'su root' failed"),
        ["Oct 11 22:14:15", "mymachine", "su", "", "'su root' failed"]
    );
    assert_eq!(
        own("<13>Feb  5 17:32:18 10.0.0.99 postfix/smtpd[12]: x"),
        ["Feb  5 17:32:18", "10.0.0.99", "postfix/smtpd", "12", "x"]
    );
    // From the machine itself: without a host.
    assert_eq!(own("<13>Feb  5 17:32:18 su[1]: x"), ["Feb  5 17:32:18", "", "su", "1", "x"]);
    // What rsyslog forwards by default.
    assert_eq!(
        own("<13>2023-01-31T12:00:00.123456+01:00 web kernel: [1.2] usb"),
        ["2023-01-31T12:00:00.123456+01:00", "web", "kernel", "", "[1.2] usb"]
    );
    // Without a tag, and with a word that only has a colon.
    assert_eq!(
        own("<13>Feb 05 17:32:18 web Use the BFG"),
        ["Feb 05 17:32:18", "web", "", "", "Use the BFG"]
    );
    assert_eq!(
        own("<13>Feb  5 17:32:18 web http://x y"),
        ["Feb  5 17:32:18", "web", "", "", "http://x y"]
    );
    assert_eq!(own("<13>Feb  5 17:32:18 web su:"), ["Feb  5 17:32:18", "web", "su", "", ""]);
    // The text is the rest if there is no time, or another form of RFC 5424.
    assert_eq!(own("<13>hello: x"), ["", "", "", "", "hello: x"]);
    for rest in [
        "1 2003-10-11 h a - - - x",
        "1 - h a - - [x a=\"\"][x a=\"\"] y",
        "1 - h a - - [x a=\"y\\\"]",
        "1 - h a - - -x",
        "1 - h  a - - - x",
        "2 - h a - - - x",
        "Okt 11 22:14:15 h su: x",
        "Oct 1 22:14:15 h su: x",
    ] {
        assert_eq!(own(&format!("<13>{rest}")), ["", "", "", "", rest]);
    }
}

#[test]
fn a_priority_is_a_number_below_192() {
    for line in ["<192>x", "<013>x", "<>x", "<13x", "13>x", "<-1>x", "<1000>x", " <13>x", "", "<"] {
        assert_eq!(fields(line.as_bytes()), json!({"text": line}));
    }
    assert_eq!(fields(b"<191>x"), json!({"facility": "local7", "severity": "debug", "text": "x"}));
}
