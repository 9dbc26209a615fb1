//! The rskafka crate with the line protocol. It has no groups.

use std::collections::BTreeMap;
use std::time::Instant;

use chrono::{TimeZone, Utc};
use drivers::{codec, encoded, number, ranges, sent, serve, text, version, Answer, TIMEOUT};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::{Record, RecordAndOffset};
use serde_json::{json, Value};

const NO_GROUPS: &str = "the crate has no consumer groups";
const NO_TRANSACTIONS: &str = "the crate has no transactions";
const NO_MARKERS: &str = "the crate has no transactions, and fails where it reads their markers";

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    serve(|what, question| match what {
        "hello" => Ok(json!({
            "version": version("rskafka"),
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
            "cannot": {
                "group": NO_GROUPS, "commit": NO_GROUPS,
                "transactions": NO_TRANSACTIONS, "markers": NO_MARKERS,
            },
        })),
        "produce" => runtime.block_on(produce(question)),
        "consume" => runtime.block_on(consume(question)),
        "offset_for_time" => runtime.block_on(offset_for_time(question)),
        _ => Err(format!("no {what}").into()),
    });
}

async fn partition(question: &Value, index: i32) -> Result<PartitionClient, rskafka::client::error::Error> {
    let client = ClientBuilder::new(vec![text(&question["address"]).to_string()]).build().await?;
    client.partition_client(text(&question["topic"]), index, UnknownTopicHandling::Retry).await
}

async fn produce(question: &Value) -> Answer {
    let compression = match codec(question) {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let mut batches: BTreeMap<i32, Vec<(usize, Record)>> = BTreeMap::new();
    for (at, one) in sent(question).into_iter().enumerate() {
        let timestamp = one.timestamp.map_or_else(Utc::now, |millis| Utc.timestamp_millis_opt(millis).unwrap());
        let headers = one.headers.into_iter().map(|(name, value)| (name, value.unwrap_or_default())).collect();
        let record = Record { key: one.key, value: one.value, headers, timestamp };
        batches.entry(one.partition).or_default().push((at, record));
    }
    let mut offsets: BTreeMap<usize, i64> = BTreeMap::new();
    for (index, batch) in batches {
        let (places, records): (Vec<usize>, Vec<Record>) = batch.into_iter().unzip();
        let told = partition(question, index).await?.produce(records, compression).await?;
        offsets.extend(places.into_iter().zip(told));
    }
    Ok(json!(offsets.into_values().collect::<Vec<_>>()))
}

async fn consume(question: &Value) -> Answer {
    let mut rows = Vec::new();
    let began = Instant::now();
    for (index, start, end) in ranges(question) {
        let client = partition(question, index).await?;
        let mut at = start;
        while at < end {
            if began.elapsed() > TIMEOUT {
                return Err(format!("timed out after {} records", rows.len()).into());
            }
            for found in client.fetch_records(at, 1..1_000_000, 20).await?.0 {
                at = found.offset + 1;
                rows.push(row(index, found));
            }
        }
    }
    Ok(json!(rows))
}

fn row(partition: i32, found: RecordAndOffset) -> Value {
    let record = found.record;
    let headers: Vec<Value> =
        record.headers.iter().map(|(name, value)| json!([name, encoded(Some(value))])).collect();
    json!([
        partition,
        found.offset,
        record.timestamp.timestamp_millis(),
        encoded(record.key.as_deref()),
        encoded(record.value.as_deref()),
        headers,
    ])
}

async fn offset_for_time(question: &Value) -> Answer {
    let time = Utc.timestamp_millis_opt(number(&question["timestamp"])).unwrap();
    let client = partition(question, number(&question["partition"]) as i32).await?;
    let offset = client.get_offset(OffsetAt::Timestamp(time)).await?;
    Ok(if offset < 0 { Value::Null } else { json!(offset) })
}
