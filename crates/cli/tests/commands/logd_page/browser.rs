//! The page in a real browser: lines that come while it is open, a search, and lines that look like HTML.

use std::{net::SocketAddr, path::Path};

use super::{OF_ALL, lines, start, store, temporary};
use crate::harness::browser::{Page, has_browser};

/// Opens the page as a phone shows it.
fn open(profile: &Path, http: SocketAddr) -> Page {
    Page::visit(profile, &format!("http://{http}/"))
}

/// Fills a field.
fn fill(page: &mut Page, selector: &str, text: &str) {
    let text = serde_json::Value::from(text);
    page.look(&format!(
        "document.querySelector({selector:?}).value = {text}, \
         document.querySelector({selector:?}).dispatchEvent(new Event('change', {{bubbles: true}}))"
    ));
}

#[test]
fn live_lines_arrive_and_a_search_finds_one() {
    if !has_browser() {
        return;
    }
    let (directory, profile) = (temporary(), temporary());
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    let all = lines(0..40);
    store(&daemon, "", &all[..20]);
    let mut page = open(profile.path(), http);
    page.wait_for("document.querySelectorAll('#live li').length == 20");
    let live =
        "[...document.querySelectorAll('#live li')].map(own => own.lastChild.data).join('\\n')";
    assert_eq!(page.look(live), all[..20].join("\n"));
    // Another client sends while the page is open.
    store(&daemon, "", &all[20..]);
    page.wait_for("document.querySelectorAll('#live li').length == 40");
    assert_eq!(page.look(live), all.join("\n"));
    // Lines are text, whatever they look like, and their numbers have all their digits.
    let hostile = [
        r#"{"n":12345678901234567890,"m":"<script>document.title='taken'</script>"}"#,
        r#"{"m":"<img src=x onerror=\"document.title='taken'\">","q":",\"line\":"}"#,
        r#"{"m":"</script></ol><script>document.title='taken'</script>&lt;b>"}"#,
    ]
    .map(str::to_owned);
    store(&daemon, "", &hostile);
    page.wait_for("document.querySelectorAll('#live li').length == 43");
    assert_eq!(page.look(live), [&all[..], &hostile].concat().join("\n"));
    // A search by a key alone.
    let found = live.replace("#live", "#found");
    fill(&mut page, "[name=where]", "n=12");
    page.look("document.querySelector('[name=match]').focus()");
    page.press("Enter");
    page.wait_for("document.querySelector('#found-state').textContent == '1 lines'");
    assert_eq!(page.look(&found), all[12].as_str());
    fill(&mut page, "[name=where]", "");
    fill(&mut page, "[name=match]", "taken");
    page.look("document.querySelector('#query button').click()");
    page.wait_for("document.querySelector('#found-state').textContent == '3 lines'");
    assert_eq!(page.look(&found), hostile.join("\n"));
    fill(&mut page, "[name=since]", "soon");
    page.look("document.querySelector('#query button').click()");
    page.wait_for(
        "document.querySelector('#found-state').textContent.includes(\"invalid value 'soon'\")",
    );
    assert_eq!(page.look("document.title"), "ringwise logd");
    let inner = "document.querySelectorAll(':is(#live, #found) :not(li, time, b)').length";
    assert_eq!(page.look(inner), 0, "no line is HTML");
    // The same lines alone, and none while it pauses.
    page.look("document.querySelector('#filter').click()");
    page.wait_for("document.querySelectorAll('#live li').length == 3");
    page.look("document.querySelector('#pause').click()");
    page.wait_for("document.querySelector('#live-state').textContent == 'Paused'");
    store(&daemon, "", &["\"taken while it pauses\"".to_owned()]);
    // Figures come up to date without a reload, which would empty the fields.
    page.wait_for("document.querySelector('#threads').textContent.includes('44')");
    assert_eq!(page.look("document.querySelectorAll('#live li').length"), 3);
    assert_eq!(page.look("document.querySelector('[name=match]').value"), "taken");
    page.look("document.querySelector('#pause').click()");
    page.wait_for("document.querySelectorAll('#live li').length == 4");
    daemon.end();
    page.wait_for("document.body.classList.contains('old')");
}

#[test]
fn the_page_is_for_everybody() {
    if !has_browser() {
        return;
    }
    let (directory, profile) = (temporary(), temporary());
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "2"]).unwrap();
    store(&daemon, "", &[format!("\"{}\"", "wide".repeat(200))]);
    let mut page = open(profile.path(), http);
    page.wait_for("document.querySelectorAll('#live li').length == 1");
    page.is_for_everybody(0);
    let named = "[...document.querySelectorAll('input, button, [tabindex]')].every(own => own.labels?.length > 0 || \
                 own.textContent.trim() && own.matches('button') || own.ariaLabel)";
    assert_eq!(page.look(named), true, "everything that keys reach has a name");
    // Only the page's own script runs, though somebody managed to add another.
    page.look(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = \"taken\"'}))",
    );
    page.look("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = 1\">')");
    page.wait_for("document.querySelectorAll('body > img').length == 1");
    assert_eq!(page.look("document.title"), "ringwise logd");
    drop(page);
    daemon.end();
}

#[test]
fn a_token_is_entered_on_the_page() {
    if !has_browser() {
        return;
    }
    let (directory, profile) = (temporary(), temporary());
    let file = directory.path().join("page-tokens");
    std::fs::write(&file, format!("{OF_ALL} *\n")).unwrap();
    let flags = ["--page-tokens", file.to_str().unwrap()];
    let (daemon, http) = start("epoll", &directory.path().join("log"), &flags).unwrap();
    store(&daemon, "", &lines(0..3));
    let mut page = open(profile.path(), http);
    page.wait_for("document.querySelector('#live-state').textContent == 'A token is needed'");
    fill(&mut page, "#token", "guess");
    page.wait_for(
        "document.querySelector('#live-state').textContent.startsWith('this token is not')",
    );
    fill(&mut page, "#token", OF_ALL);
    page.wait_for("document.querySelectorAll('#live li').length == 3");
    page.look("document.querySelector('#query button').click()");
    page.wait_for("document.querySelectorAll('#found li').length == 3");
    daemon.end();
}

#[test]
fn without_scripts_it_shows_the_figures() {
    if !has_browser() {
        return;
    }
    let (directory, profile) = (temporary(), temporary());
    let (daemon, http) = start("epoll", directory.path(), &["--threads", "1"]).unwrap();
    store(&daemon, "", &lines(0..3));
    let mut page = open(profile.path(), http);
    page.without_scripts();
    page.wait_for("document.body.innerText.includes('lines-000')");
    let text = page.look("document.body.innerText").as_str().unwrap().to_owned();
    assert!(text.contains("ready") && text.contains("Rates"), "{text}");
    assert!(
        !text.contains("Search") && !text.contains("Live"),
        "what does nothing is not shown: {text}"
    );
    // It reloads itself, as that needs no script.
    page.look("window.isOld = true");
    page.wait_for("!window.isOld && document.readyState == 'complete'");
    daemon.end();
}
