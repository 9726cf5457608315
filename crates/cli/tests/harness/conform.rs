//! Whether a JSON document is what its schema under `docs/reference/schema` says: a part of the tests that
//! write one.

use serde_json::Value;

/// Checks a value as far as this schema goes: types, constants, required and unknown fields.
pub fn conform(value: &Value, schema: &Value, root: &Value, place: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        conform(value, &root["$defs"][name], root, place);
    }
    if let Some(constant) = schema.get("const") {
        assert_eq!(value, constant, "{place}");
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{place}: {value}");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    assert!(types.is_empty() || types.into_iter().any(is), "{place}: {value}");
    if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        for field in schema["required"].as_array().unwrap() {
            assert!(object.contains_key(field.as_str().unwrap()), "{place} lacks {field}");
        }
        for (name, field) in object {
            let property = properties.get(name);
            let property =
                property.unwrap_or_else(|| panic!("{place}.{name} is not in the schema"));
            conform(field, property, root, &format!("{place}.{name}"));
        }
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        for (index, item) in items.iter().enumerate() {
            conform(item, schema, root, &format!("{place}[{index}]"));
        }
    }
}
