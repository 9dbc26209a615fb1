//! The rdkafka crate, with the librdkafka that it builds, with the line protocol.

use std::collections::HashMap;
use std::time::Instant;

use drivers::{codec, encoded, number, ranges, sent, serve, text, version, Answer, TIMEOUT};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, DefaultConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::util::Timeout;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

type Member = BaseConsumer<DefaultConsumerContext>;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut member: Option<Member> = None;
    let mut producer: Option<FutureProducer> = None;
    serve(|what, question| match what {
        "hello" => Ok(json!({
            "version": version("rdkafka"),
            "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
            "protocols": ["classic", "consumer"],
            "cannot": {},
        })),
        "produce" => runtime.block_on(produce(question)),
        "consume" => consume(question),
        "offset_for_time" => offset_for_time(question),
        "open" => {
            member = Some(open(question)?);
            Ok(Value::Null)
        }
        "poll" => poll(member.as_ref().ok_or("not open")?, question),
        "commit" => {
            match member.as_ref().ok_or("not open")?.commit_consumer_state(CommitMode::Sync) {
                Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => Ok(Value::Null), // nothing was polled
                told => Ok(told.map(|_| Value::Null)?),
            }
        }
        "close" => {
            member = None;
            Ok(Value::Null)
        }
        "begin" => {
            if producer.is_none() {
                producer = Some(transactional(question)?);
            }
            Ok(producer.as_ref().unwrap().begin_transaction().map(|_| Value::Null)?)
        }
        "send" => runtime.block_on(send(producer.as_ref().ok_or("not begun")?, question)),
        "end" => end(producer.as_ref().ok_or("not begun")?, member.as_ref(), question),
        _ => Err(format!("no {what}").into()),
    });
}

fn config(question: &Value) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", text(&question["address"]));
    config
}

async fn produce(question: &Value) -> Answer {
    let producer: FutureProducer = config(question)
        .set("compression.type", codec(question))
        .set("linger.ms", "5")
        .set("enable.idempotence", "true")
        .create()?;
    send(&producer, question).await
}

fn transactional(question: &Value) -> Result<FutureProducer, KafkaError> {
    let producer: FutureProducer = config(question).set("transactional.id", text(&question["id"])).create()?;
    producer.init_transactions(TIMEOUT)?;
    Ok(producer)
}

fn end(producer: &FutureProducer, member: Option<&Member>, question: &Value) -> Answer {
    if question["positions"].as_bool() == Some(true) {
        let member = member.ok_or("not open")?;
        let group = member.group_metadata().ok_or("no group")?;
        producer.send_offsets_to_transaction(&member.position()?, &group, TIMEOUT)?;
    }
    if question["commit"].as_bool() == Some(true) {
        producer.commit_transaction(TIMEOUT)?;
    } else {
        producer.abort_transaction(TIMEOUT)?;
    }
    Ok(Value::Null)
}

async fn send(producer: &FutureProducer, question: &Value) -> Answer {
    let topic = text(&question["topic"]);
    let records = sent(question);
    let mut delivered = Vec::new();
    for one in &records {
        let mut headers = OwnedHeaders::new();
        for (name, value) in &one.headers {
            headers = headers.insert(Header { key: name, value: value.as_ref() });
        }
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).partition(one.partition).headers(headers);
        record.key = one.key.as_deref();
        record.payload = one.value.as_deref();
        record.timestamp = one.timestamp;
        delivered.push(producer.send_result(record).map_err(|(error, _)| error)?);
    }
    producer.flush(Timeout::After(TIMEOUT))?;
    let mut offsets = Vec::new();
    for one in delivered {
        offsets.push(one.await?.map_err(|(error, _)| error)?.offset);
    }
    Ok(json!(offsets))
}

fn row(message: &BorrowedMessage) -> Value {
    let headers: Vec<Value> = message.headers().map_or(Vec::new(), |headers| {
        headers.iter().map(|header| json!([header.key, encoded(header.value)])).collect()
    });
    json!([
        message.partition(),
        message.offset(),
        message.timestamp().to_millis(),
        encoded(message.key()),
        encoded(message.payload()),
        headers,
    ])
}

fn assigned_consumer(question: &Value) -> Result<Member, KafkaError> {
    let isolation = question["config"]["isolation.level"].as_str().unwrap_or("read_committed");
    config(question)
        .set("group.id", "none")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "20")
        .set("isolation.level", isolation)
        .create()
}

fn consume(question: &Value) -> Answer {
    let consumer = assigned_consumer(question)?;
    let mut left = HashMap::new();
    let mut partitions = TopicPartitionList::new();
    for (partition, start, end) in ranges(question) {
        partitions.add_partition_offset(text(&question["topic"]), partition, Offset::Offset(start))?;
        if start < end {
            left.insert(partition, end); // ranges not read to their end
        }
    }
    consumer.assign(&partitions)?;
    let mut rows = Vec::new();
    let began = Instant::now();
    while !left.is_empty() {
        if began.elapsed() > TIMEOUT {
            return Err(format!("timed out after {} records", rows.len()).into());
        }
        if let Some(message) = consumer.poll(std::time::Duration::from_millis(100)) {
            let message = message?;
            let Some(end) = left.get(&message.partition()).copied() else { continue };
            if message.offset() < end {
                rows.push(row(&message));
            }
            if message.offset() >= end - 1 {
                left.remove(&message.partition());
            }
        }
    }
    Ok(json!(rows))
}

fn offset_for_time(question: &Value) -> Answer {
    let mut wanted = TopicPartitionList::new();
    let partition = number(&question["partition"]) as i32;
    wanted.add_partition_offset(
        text(&question["topic"]),
        partition,
        Offset::Offset(number(&question["timestamp"])),
    )?;
    let found = assigned_consumer(question)?.offsets_for_times(wanted, TIMEOUT)?;
    Ok(match found.elements()[0].offset() {
        Offset::Offset(offset) => json!(offset),
        _ => Value::Null,
    })
}

fn open(question: &Value) -> Result<Member, KafkaError> {
    let mut config = config(question);
    config
        .set("group.id", text(&question["group"]))
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false");
    match question["config"]["group.protocol"].as_str() {
        Some(protocol) => config.set("group.protocol", protocol),
        None => config.set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "200"),
    };
    let member: Member = config.create()?;
    member.subscribe(&[text(&question["topic"])])?;
    Ok(member)
}

fn poll(member: &Member, question: &Value) -> Answer {
    let mut wait = std::time::Duration::from_millis(number(&question["timeout_ms"]) as u64);
    let mut rows = Vec::new();
    while let Some(message) = member.poll(wait) {
        rows.push(row(&message?));
        wait = std::time::Duration::ZERO;
    }
    Ok(json!({ "rows": rows }))
}
