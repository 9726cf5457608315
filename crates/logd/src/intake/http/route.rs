//! What is at which path: the one table of the intake, and whose protocol that is.

use hyper::{
    HeaderMap,
    header::{ACCEPT, CONTENT_TYPE},
};

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

/// Whose rules an answer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// The daemon's own.
    Lines,
    /// With the type of its answers.
    Elastic(&'static str),
    Otlp(Form),
    Loki,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Lines,
    /// With the index that the path names.
    Bulk(Option<Box<str>>),
    Logs(Form),
    Push(Form),
    /// Clients of Elasticsearch ask who it is before they send.
    About(&'static str),
    /// There is nothing at the path.
    Nothing,
}

/// A request, by all but its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) protocol: Protocol,
    pub(super) purpose: Purpose,
    /// The methods that it may have.
    pub(super) methods: &'static str,
}

const NODE: &str = concat!(
    r#"{"name":"ringwise-logd","cluster_name":"ringwise-logd","cluster_uuid":"_na_","version":{"#,
    r#""number":"8.19.0","build_flavor":"default","build_snapshot":false,"#,
    r#""minimum_wire_compatibility_version":"7.17.0","#,
    r#""minimum_index_compatibility_version":"7.0.0"},"tagline":"You Know, for Search"}"#,
    "\n"
);
/// Vector asks for it. An intake that cannot store answers with an error before.
const HEALTH: &str = concat!(
    r#"{"cluster_name":"ringwise-logd","status":"green","timed_out":false,"#,
    r#""number_of_nodes":1,"number_of_data_nodes":1}"#,
    "\n"
);
/// Logstash sends nothing without it.
const LICENSE: &str = "{\"license\":{\"status\":\"active\",\"type\":\"basic\"}}\n";

/// Finds what a request is for.
pub(super) fn find(path: &str, headers: &HeaderMap) -> Route {
    let elastic = Protocol::Elastic(elastic_type(headers));
    let about = |told| (elastic, Purpose::About(told), "GET, HEAD");
    let bulk = |index: Option<&str>| (elastic, Purpose::Bulk(index.map(Box::from)), "POST, PUT");
    let (protocol, purpose, methods) = match path {
        "/ingest" => (Protocol::Lines, Purpose::Lines, "POST"),
        "/v1/logs" => {
            let form = form(headers);
            (Protocol::Otlp(form), Purpose::Logs(form), "POST")
        }
        "/loki/api/v1/push" => (Protocol::Loki, Purpose::Push(form(headers)), "POST"),
        "/_bulk" => bulk(None),
        "/" => about(NODE),
        "/_cluster/health" => about(HEALTH),
        "/_license" => about(LICENSE),
        _ => match path[1..].strip_suffix("/_bulk") {
            Some(index) if !index.is_empty() && !index.contains('/') => bulk(Some(index)),
            _ if path.starts_with("/_") => (elastic, Purpose::Nothing, ""),
            _ => (Protocol::Lines, Purpose::Nothing, ""),
        },
    };
    Route { protocol, purpose, methods }
}

/// The value of a header, in lower case, without parameters.
pub(super) fn word(
    headers: &HeaderMap,
    name: hyper::header::HeaderName,
) -> Result<String, hyper::header::ToStrError> {
    headers.get(name).map_or(Ok(String::new()), |value| {
        let word = value.to_str()?.split(';').next().unwrap_or_default();
        Ok(word.trim().to_ascii_lowercase())
    })
}

/// Loki takes all that is not JSON for protobuf. For OTLP the type has to be one of the two, which is checked later.
fn form(headers: &HeaderMap) -> Form {
    match word(headers, CONTENT_TYPE).as_deref() {
        Ok("application/json") => Form::Json,
        _ => Form::Protobuf,
    }
}

/// Clients of a version ask for the answers of that version. Those of `_bulk` are the same in all of them.
fn elastic_type(headers: &HeaderMap) -> &'static str {
    const OWN: &str = "application/vnd.elasticsearch+json";
    let asked = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let version = asked.strip_prefix(OWN).and_then(|rest| rest.split_once("compatible-with="));
    match version.map(|(_, version)| version.trim()) {
        Some("7") => "application/vnd.elasticsearch+json;compatible-with=7",
        Some("8") => "application/vnd.elasticsearch+json;compatible-with=8",
        Some("9") => "application/vnd.elasticsearch+json;compatible-with=9",
        _ => "application/json",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_protocol() {
        let none = HeaderMap::new();
        let of = |path| {
            let route = find(path, &none);
            (route.protocol, route.purpose, route.methods)
        };
        let json = Protocol::Elastic("application/json");
        assert_eq!(of("/ingest"), (Protocol::Lines, Purpose::Lines, "POST"));
        assert_eq!(of("/_bulk"), (json, Purpose::Bulk(None), "POST, PUT"));
        assert_eq!(of("/a-b/_bulk").1, Purpose::Bulk(Some("a-b".into())));
        for path in ["/_search", "/_ilm/policy/x", "/_index_template/_bulk/x"] {
            assert_eq!(of(path), (json, Purpose::Nothing, ""), "{path}");
        }
        for path in ["/x", "/a/b/_bulk", "//_bulk", "/ingest/", "*", ""] {
            if !path.is_empty() {
                assert_eq!(of(path), (Protocol::Lines, Purpose::Nothing, ""), "{path}");
            }
        }
        for about in ["/", "/_license", "/_cluster/health"] {
            let Purpose::About(told) = of(about).1 else { panic!("{about}") };
            assert!(serde_json::from_str::<serde_json::Value>(told).unwrap().is_object());
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "Application/JSON; charset=utf-8".parse().unwrap());
        assert_eq!(find("/v1/logs", &headers).purpose, Purpose::Logs(Form::Json));
        assert_eq!(find("/v1/logs", &none).purpose, Purpose::Logs(Form::Protobuf));
        assert_eq!(find("/loki/api/v1/push", &headers).purpose, Purpose::Push(Form::Json));
        for (accept, told) in [
            ("application/vnd.elasticsearch+json; compatible-with=8", "+json;compatible-with=8"),
            ("application/vnd.elasticsearch+json;compatible-with=6", "application/json"),
            ("*/*", "application/json"),
        ] {
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert!(elastic_type(&headers).ends_with(told), "{accept}");
        }
    }
}
