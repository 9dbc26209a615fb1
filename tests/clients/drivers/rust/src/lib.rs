//! The code that the drivers in Rust share: a JSON question a line, a JSON answer a line.
//!
//! tests/clients/driver.py describes the protocol.

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde_json::{json, Value};

pub type Answer = Result<Value, Box<dyn Error>>;

/// Ends what takes too long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Answer until stdin ends.
pub fn serve(mut work: impl FnMut(&str, &Value) -> Answer) {
    for line in std::io::stdin().lock().lines() {
        let question: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = match work(text(&question["do"]), &question) {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}").unwrap();
        out.flush().unwrap();
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub fn bytes(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|encoded| STANDARD.decode(encoded).unwrap())
}

pub fn encoded(data: Option<&[u8]>) -> Value {
    data.map_or(Value::Null, |data| Value::String(STANDARD.encode(data)))
}

/// A record that shall be produced.
pub struct Sent {
    pub partition: i32,
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

pub fn sent(question: &Value) -> Vec<Sent> {
    let rows = question["records"].as_array().unwrap();
    rows.iter()
        .map(|row| Sent {
            partition: number(&row[0]) as i32,
            timestamp: row[1].as_i64(),
            key: bytes(&row[2]),
            value: bytes(&row[3]),
            headers: row[4]
                .as_array()
                .unwrap()
                .iter()
                .map(|header| (text(&header[0]).to_string(), bytes(&header[1])))
                .collect(),
        })
        .collect()
}

/// (partition, first offset, end offset) of what shall be read.
pub fn ranges(question: &Value) -> Vec<(i32, i64, i64)> {
    let ends = question["ends"].as_object().unwrap();
    ends.iter()
        .map(|(name, end)| (name.parse().unwrap(), number(&question["starts"][name]), number(end)))
        .collect()
}

/// The codec that `config` names.
pub fn codec(question: &Value) -> &str {
    question["config"]["compression.type"].as_str().unwrap_or("none")
}

/// The version of a crate in the lock file.
pub fn version(name: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let line = entry.and_then(|entry| entry.lines().find_map(|line| line.strip_prefix("version = ")));
    line.unwrap_or_default().trim_matches('"').to_string()
}
