//! The document of the API, held against what the server answers.

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::http::RULES;
use crate::support::Serve;
use crate::support::servers::Server;

/// How a value does not fit a schema, if it does not. Only the keywords that the document has are
/// known.
fn misfit(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    for (keyword, wanted) in schema.as_object().unwrap() {
        let fits = match &**keyword {
            "$ref" => {
                let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                let misfit = misfit(document, document.pointer(pointer).unwrap(), value);
                if misfit.is_some() {
                    return misfit;
                }
                true
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64(),
                    "null" => value.is_null(),
                    other => panic!("unknown type {other}"),
                };
                wanted
                    .as_array()
                    .map_or_else(|| is(wanted), |any| any.iter().any(is))
            }
            "const" => value == wanted,
            "required" => {
                let mut names = wanted.as_array().unwrap().iter();
                names.all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" if *wanted == json!(false) => {
                let known = schema["properties"].as_object().unwrap();
                let mut fields = value.as_object().into_iter().flatten();
                fields.all(|(name, _)| known.contains_key(name))
            }
            "properties" => {
                for (name, schema) in wanted.as_object().unwrap() {
                    let inner = value.get(name).and_then(|it| misfit(document, schema, it));
                    if let Some(misfit) = inner {
                        return Some(format!("{name}: {misfit}"));
                    }
                }
                true
            }
            "items" => {
                let mut misfits = value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|it| misfit(document, wanted, it));
                if let Some(misfit) = misfits.next() {
                    return Some(misfit);
                }
                true
            }
            "anyOf" | "oneOf" => {
                let mut schemas = wanted.as_array().unwrap().iter();
                schemas.any(|schema| misfit(document, schema, value).is_none())
            }
            "additionalProperties"
            | "description"
            | "default"
            | "examples"
            | "minimum"
            | "maximum"
            | "maxProperties"
            | "example"
            | "format" => true,
            other => panic!("unknown keyword {other}"),
        };
        if !fits {
            return Some(format!("{keyword} {wanted} is not that of {value}"));
        }
    }
    None
}

/// Asserts that the document has this answer as it is.
async fn is_documented(document: &Value, method: &str, path: &str, answer: Response) {
    let status = answer.status();
    let what = format!("{method} {path} {status}");
    let operation = &document["paths"][path][method];
    let documented = &operation["responses"][status.as_str()];
    assert!(
        documented.is_object(),
        "{what}: {}",
        answer.text().await.unwrap()
    );
    let known = documented["headers"].as_object();
    for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
        if answer.headers().contains_key(name) {
            let mut names = known.into_iter().flatten();
            assert!(
                names.any(|(it, _)| it.eq_ignore_ascii_case(name)),
                "{what}: {name}"
            );
        }
    }
    let Some(content_type) = answer.headers().get("content-type").cloned() else {
        assert!(documented.get("content").is_none(), "{what}");
        return;
    };
    let content_type = content_type
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let schema = &documented["content"][&*content_type]["schema"];
    assert!(schema.is_object(), "{what}: {content_type}");
    let text = answer.text().await.unwrap();
    let value = match content_type.ends_with("json") {
        true => serde_json::from_str(&text).unwrap(),
        false => Value::from(text),
    };
    assert_eq!(misfit(document, schema, &value), None, "{what}");
}

#[tokio::test]
async fn each_answer_is_as_the_document_has_it() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &["--response-timeout", "500ms"]);
    let document: Value = serve
        .get(&serve.http, "/openapi.json")
        .await
        .json()
        .await
        .unwrap();
    let mut redis = server.connection().await;
    let list = redis::cmd("LPUSH")
        .arg("fixed_window:per-user:list")
        .arg(1)
        .to_owned();
    let () = list.query_async(&mut redis).await.unwrap();
    let mut asked = Vec::new();
    let operations = ["check", "acquire", "peek", "release"].map(|it| format!("/v1/{it}"));
    let mut bodies = vec![json!({}), json!([1]), json!({ "entries": {} })];
    for user in ["alice", "alice", "alice", "mallory", "list"] {
        bodies.push(json!({ "domain": "shop", "entries": { "user": user } }));
    }
    bodies.push(json!({ "entries": { "user": "bob" }, "cost": 9 }));
    for is_away in [false, true] {
        if is_away {
            server.signal("KILL");
            serve.line_with("lost the connection");
        }
        for path in &operations {
            for body in &bodies {
                let mut body = body.clone();
                if path == "/v1/acquire" && body.is_object() {
                    body["timeout_ms"] = json!(1);
                }
                let answer = serve.post(path, body).await;
                asked.push((path.clone(), answer.status().as_u16()));
                is_documented(&document, "post", path, answer).await;
            }
            let url = format!("http://{}{path}", serve.http);
            let form = serve.client.post(&url).send().await.unwrap();
            is_documented(&document, "post", path, form).await;
            let other = serve.client.get(&url).send().await.unwrap();
            assert_eq!(other.status(), StatusCode::METHOD_NOT_ALLOWED);
            is_documented(&document, "post", path, other).await;
        }
        let path = "/v1/auth-request/{domain}";
        let url = format!("http://{}/v1/auth-request/a?user=x-user", serve.http);
        for user in ["carol", "carol", "carol", "mallory", "list"] {
            let request = serve.client.get(&url).header("x-user", user);
            let answer = request.send().await.unwrap();
            asked.push((path.to_owned(), answer.status().as_u16()));
            is_documented(&document, "get", path, answer).await;
        }
        for path in ["/openapi.json", "/healthz", "/readyz"] {
            let answer = serve.get(&serve.http, path).await;
            is_documented(&document, "get", path, answer).await;
            let other = serve.client.put(format!("http://{}{path}", serve.http));
            let answer = other.send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
            is_documented(&document, "get", path, answer).await;
            let fields: HeaderMap = (0..200)
                .map(|it| {
                    (
                        format!("x-{it}").parse().unwrap(),
                        HeaderValue::from_static(""),
                    )
                })
                .collect();
            let many = serve.client.get(format!("http://{}{path}", serve.http));
            let answer = many.headers(fields).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            is_documented(&document, "get", path, answer).await;
        }
    }
    // The process answers, whatever the store does.
    let healthz = &document["paths"]["/healthz"]["get"]["responses"];
    assert_eq!(healthz["503"], json!(null));
    // The document has only paths that exist, and the cases above were met.
    let mut paths: Vec<_> = document["paths"].as_object().unwrap().keys().collect();
    paths.retain(|path| !operations.contains(path));
    assert_eq!(
        paths,
        [
            "/healthz",
            "/openapi.json",
            "/readyz",
            "/v1/auth-request/{domain}"
        ]
    );
    for status in [200, 400, 403, 429, 500, 503] {
        assert!(
            asked.contains(&("/v1/check".to_owned(), status)),
            "{status}: {asked:?}"
        );
    }
}
