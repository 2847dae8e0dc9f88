//! `/docs`: the document as one page of plain HTML, which loads nothing and runs no script.

use serde_json::{Map, Value};

/// Depth to which schemas are unfolded.
const DEEPEST: usize = 6;

/// Renders the page of a document.
pub(crate) fn page(document: &Value) -> String {
    let info = &document["info"];
    let title = text(&info["title"]);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} API</title><style>{STYLE}</style></head><body><main><h1>{title} API <small>{}</small></h1>",
        text(&info["version"])
    );

    for line in info["description"]
        .as_str()
        .unwrap_or_default()
        .split("\n\n")
    {
        html.push_str(&format!("<p>{}</p>", escaped(line)));
    }

    html.push_str("<p>The same for programs: <a href=\"/openapi.json\">openapi.json</a></p>");
    credentials(document, &mut html);
    let mut tags: Vec<&str> = Vec::new();
    for (_, _, operation) in operations(document) {
        let tag = operation["tags"][0].as_str().unwrap_or("Other");
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }

    for tag in tags {
        html.push_str(&format!("<h2>{}</h2>", escaped(tag)));
        for (path, method, operation) in operations(document) {
            if operation["tags"][0].as_str().unwrap_or("Other") == tag {
                describe(document, path, method, operation, &mut html);
            }
        }
    }

    html.push_str("</main></body></html>\n");
    html
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(|(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

fn credentials(document: &Value, html: &mut String) {
    html.push_str("<h2>Credentials</h2><dl>");
    let schemes = &document["components"]["securitySchemes"];
    for (name, scheme) in schemes.as_object().into_iter().flatten() {
        let description = text(&scheme["description"]);
        html.push_str(&format!(
            "<dt><code>{}</code></dt><dd>{description}</dd>",
            escaped(name)
        ));
    }
    html.push_str("</dl>");
}

fn describe(document: &Value, path: &str, method: &str, operation: &Value, html: &mut String) {
    html.push_str(&format!(
        "<details id=\"{}\"><summary><b class=\"{method}\">{}</b> <code>{}</code> <span>{}</span></summary>",
        text(&operation["operationId"]),
        method.to_uppercase(),
        escaped(path),
        text(&operation["summary"])
    ));

    if let Some(description) = operation["description"].as_str() {
        html.push_str(&format!("<p>{}</p>", escaped(description)));
    }

    let security = operation["security"].as_array().into_iter().flatten();
    let accepted: Vec<_> = security
        .flat_map(Value::as_object)
        .flatten()
        .map(needed)
        .collect();

    if !accepted.is_empty() {
        html.push_str(&format!("<p>Credential: {}</p>", accepted.join(" or ")));
    }

    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for parameter in parameters {
        html.push_str(&format!(
            "<p><code>{}</code> in {}{}: {} {}</p>",
            text(&parameter["name"]),
            text(&parameter["in"]),
            if parameter["required"] == true {
                ", required"
            } else {
                ""
            },
            kind(&parameter["schema"]),
            text(&parameter["description"])
        ));
    }

    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
        html.push_str("<h3>Body</h3>");
        unfold(document, schema, DEEPEST, html);
    }

    let responses = operation["responses"].as_object().into_iter().flatten();
    for (status, response) in responses {
        let response = followed(document, response);
        html.push_str(&format!(
            "<h3>{}</h3><p>{}</p>",
            escaped(status),
            text(&response["description"])
        ));
        if status.starts_with('2') {
            let contents = response["content"].as_object().into_iter().flatten();
            for (content_type, content) in contents {
                html.push_str(&format!("<p><code>{}</code></p>", escaped(content_type)));
                unfold(document, &content["schema"], DEEPEST, html);
            }
        }
    }

    html.push_str("</details>");
}

fn needed((name, scopes): (&String, &Value)) -> String {
    let scopes = scopes.as_array().into_iter().flatten();
    let scopes: Vec<_> = scopes
        .map(|scope| format!(" <code>{}</code>", text(scope)))
        .collect();
    format!("<code>{}</code>{}", escaped(name), scopes.concat())
}

/// Resolves a reference.
fn followed<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    let reference = value["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
    reference
        .and_then(|to| document.pointer(to))
        .unwrap_or(value)
}

fn unfold(document: &Value, schema: &Value, depth: usize, html: &mut String) {
    let schema = followed(document, schema);
    if depth == 0 {
        html.push('…');
        return;
    }

    for of in ["oneOf", "anyOf"] {
        for (at, choice) in schema[of].as_array().into_iter().flatten().enumerate() {
            html.push_str(if at == 0 {
                "<p>Either</p>"
            } else {
                "<p>or</p>"
            });
            unfold(document, choice, depth - 1, html);
        }
    }

    if schema["type"] == "array" {
        html.push_str("<p>A list of</p>");
        unfold(document, &schema["items"], depth - 1, html);
    } else if let Some(properties) = schema["properties"].as_object() {
        fields(document, schema, properties, depth, html);
    } else if schema.get("oneOf").or(schema.get("anyOf")).is_none() {
        html.push_str(&format!("<p>{}</p>", kind(schema)));
    }
}

fn fields(
    document: &Value,
    schema: &Value,
    properties: &Map<String, Value>,
    depth: usize,
    html: &mut String,
) {
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    html.push_str("<ul>");

    for (name, property) in properties {
        let target = followed(document, property);
        let needed = if required.iter().any(|known| *known == name) {
            ""
        } else {
            " (optional)"
        };

        let description = property.get("description").or(target.get("description"));
        html.push_str(&format!(
            "<li><code>{}</code>{needed}: {} {}",
            escaped(name),
            kind(target),
            description.map(text).unwrap_or_default()
        ));

        let nested = ["properties", "items", "oneOf", "anyOf"];
        if nested.iter().any(|part| target.get(part).is_some()) {
            unfold(document, target, depth - 1, html);
        }

        html.push_str("</li>");
    }

    html.push_str("</ul>");
}

/// Describes a schema's type and bounds in a few words.
fn kind(schema: &Value) -> String {
    let mut words = match &schema["type"] {
        Value::String(name) => vec![name.clone()],
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };

    if let [first, second] = &*words {
        words = vec![format!("{first} or {second}")];
    }

    if let Some(of) = schema["enum"].as_array() {
        let of: Vec<_> = of.iter().map(ToString::to_string).collect();
        words.push(format!("one of {}", of.join(", ")));
    }

    for (name, shown) in [
        ("const", ""),
        ("format", ""),
        ("default", "default "),
        ("minimum", "from "),
        ("maximum", "to "),
        ("minLength", "at least "),
        ("maxLength", "at most "),
        ("minItems", "at least "),
        ("maxItems", "at most "),
    ] {
        match &schema[name] {
            Value::Null => {}
            Value::String(text) => words.push(format!("{shown}{text}")),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                words.push(format!("{shown}{other}"));
            }
        }
    }

    format!("<i>{}</i>", escaped(&words.join(", ")))
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#1b1f24;background:#fff}main{max-width:60rem;margin:auto;padding:1rem}\
code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}details{border:1px solid #c9d1d9;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}\
summary{cursor:pointer}summary:focus-visible{outline:3px solid #0a58ca}summary span{color:#4b5563}h3{margin:.8rem 0 .2rem}p{margin:.2rem 0}i{color:#4b5563}\
b{display:inline-block;min-width:4.2rem}.get{color:#0a58ca}.post{color:#146c43}.put,.patch{color:#8a4b00}.delete{color:#a61e1e}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}summary span,i{color:#9da7b3}details{border-color:#30363d}.get,a{color:#79b8ff}.post{color:#56d364}.put,.patch{color:#f0b072}.delete{color:#ff8e8e}}";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_document_says_is_shown_as_text() {
        let document = json!({
            "info": {"title": "A <b>", "version": "1"},
            "paths": {"/x/{id}": {"get": {
                "operationId": "showX", "summary": "Shows \"x\"", "tags": ["Xs"],
                "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}}},
            }}},
            "components": {"schemas": {"X": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/X"}, "size": {"type": "integer"}}}}},
        });
        let page = page(&document);
        for part in [
            "A &lt;b&gt;",
            "/x/{id}",
            "Shows &quot;x&quot;",
            "<code>size</code>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }

        // A schema that holds itself ends.
        assert!(page.contains('…'));
    }
}
