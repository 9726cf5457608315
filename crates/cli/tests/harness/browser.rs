//! A browser that is told which keys are pressed, through the pipe of its debugging protocol
//! (`--remote-debugging-pipe`: messages of JSON, each with a zero byte behind it). Keys pressed that
//! way go the way of a keyboard's, which no script in a page can have them do.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// A browser that is to show a page and nothing else.
pub const BROWSER: &str = "chromium --headless --no-sandbox --disable-gpu --no-first-run \
                           --disable-background-networking";

/// How long the page may take to do what a key means.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page in a browser.
pub struct Page {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
}

impl Page {
    /// Opens a file on a screen of a phone's width.
    pub fn open(directory: &Path, name: &str) -> Page {
        Page::visit(directory, &format!("file://{}", directory.join(name).display()))
    }

    /// Opens an address. The directory gets the browser's own files.
    pub fn visit(directory: &Path, url: &str) -> Page {
        // The protocol is spoken on descriptors 3 and 4.
        let program = format!(
            "exec timeout 120 {BROWSER} --remote-debugging-pipe \
             \"--user-data-dir=$0\" 3<&0 4>&1 0</dev/null 1>&2"
        );
        let mut browser = Command::new("sh")
            .args(["-c", &program])
            .arg(directory.join("keys-profile"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = browser.stdin.take().unwrap();
        let from = BufReader::new(browser.stdout.take().unwrap());
        let mut page = Page { browser, to, from, session: None, sent: 0 };
        let target = page.ask("Target.createTarget", json!({ "url": url }))["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = page.ask("Target.attachToTarget", attach)["sessionId"].clone();
        page.session = session.as_str().map(str::to_owned);
        // No window of a desktop is as narrow as that.
        let phone = json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true });
        page.ask("Emulation.setDeviceMetricsOverride", phone);
        page.wait_for("location.href != 'about:blank' && document.readyState == 'complete'");
        page
    }

    /// Begins with it anew: nothing has the focus.
    pub fn reload(&mut self) {
        self.look("window.isOld = true");
        self.ask("Page.reload", json!({}));
        self.wait_for("!window.isOld && document.readyState == 'complete'");
    }

    /// Begins anew with it as a browser shows it that runs no scripts of pages. What is looked at is none of the page's.
    pub fn without_scripts(&mut self) {
        self.ask("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
        self.reload();
    }

    /// Calls a method that succeeds: what it answers.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method: what it answers, or its error.
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(b"\0").unwrap();
        loop {
            let mut answer = Vec::new();
            let read = self.from.read_until(0, &mut answer).unwrap();
            assert!(read > 0, "the browser has ended");
            answer.pop();
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            // What is not an answer is news of the browser's.
            if answer["id"] == json!(self.sent) {
                return match answer["error"].take() {
                    Value::Null => Ok(answer["result"].take()),
                    error => Err(error),
                };
            }
        }
    }

    /// What an expression is in the page. If the page is just being loaded anew, in the new one.
    pub fn look(&mut self, expression: &str) -> Value {
        let began = Instant::now();
        loop {
            let parameters = json!({ "expression": expression, "returnByValue": true });
            match self.call("Runtime.evaluate", parameters) {
                Ok(answer) => {
                    assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
                    return answer["result"]["value"].clone();
                }
                // "Inspected target navigated or closed", or that it has no context yet.
                Err(error) => {
                    let is_between = error["code"] == -32000 && began.elapsed() < PATIENCE;
                    assert!(is_between, "{expression}: {error}");
                }
            }
        }
    }

    /// What a screen reader says of each picture.
    pub fn pictures(&mut self) -> Vec<String> {
        let tree = self.ask("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        let pictures = nodes.filter(|node| {
            node["ignored"] == false
                && ["img", "image"].map(Value::from).contains(&node["role"]["value"])
        });
        pictures.map(|node| node["name"]["value"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Fails if the page is wider than its screen, or has a picture of which a screen reader says nothing.
    #[track_caller]
    pub fn is_for_everybody(&mut self, pictures_min: usize) {
        assert_eq!(self.look("document.documentElement.clientWidth"), 390);
        let beyond = "[...document.querySelectorAll('body *')].filter(own => !own.closest('.wide, .skip, svg *') \
                      && own.getBoundingClientRect().right > 391).map(own => own.outerHTML.slice(0, 80)).join('; ')";
        assert_eq!(self.look(beyond), "", "wider than the screen");
        let pictures = self.pictures();
        assert!(pictures.len() >= pictures_min, "{pictures:?}");
        assert!(pictures.iter().all(|name| !name.is_empty()), "{pictures:?}");
    }

    /// Waits until an expression is true: scrolling is not done when the key is.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let began = Instant::now();
        while self.look(expression) != json!(true) {
            assert!(began.elapsed() < PATIENCE, "never true: {expression}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses a key and lets it go.
    pub fn press(&mut self, key: &str) {
        let (code, number, text) = match key {
            "Tab" => ("Tab", 9, ""),
            "Enter" => ("Enter", 13, "\r"),
            "ArrowRight" => ("ArrowRight", 39, ""),
            other => panic!("no such key: {other}"),
        };
        let event = |kind: &str| {
            json!({ "type": kind, "key": key, "code": code, "text": text,
                    "windowsVirtualKeyCode": number })
        };
        // One without a text is "raw", or it would be taken for a character.
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        self.ask("Input.dispatchKeyEvent", event(down));
        self.ask("Input.dispatchKeyEvent", event("keyUp"));
    }
}

/// Whether there is a browser. In CI there has to be one, unless that is excused.
pub fn has_browser() -> bool {
    let is_there = Command::new("chromium").arg("--version").output();
    let is_there = is_there.is_ok_and(|output| output.status.success());
    if !is_there {
        let is_excused = std::env::var_os("RINGWISE_NO_BROWSER").is_some();
        assert!(std::env::var_os("CI").is_none() || is_excused, "chromium is not installed");
        println!("skipped: chromium is not installed");
    }
    is_there
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
