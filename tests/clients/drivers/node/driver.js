// KafkaJS with the line protocol, which tests/clients/driver.py describes.
//
// lz4 and zstd are plugged in, as its documentation says, with libraries that need no compiler. (lz4js makes frames that no
// broker takes.)
'use strict'

const readline = require('readline')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')
const kafkajs = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')

const { Kafka, CompressionTypes, CompressionCodecs, PartitionAssigners, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})

const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const TIMEOUT_MS = 30000

const encoded = data => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
const decoded = text => (text === null ? null : Buffer.from(text, 'base64'))
const connection = question => new Kafka({ brokers: [question.address], logLevel: logLevel.NOTHING })

async function hello() {
  return { version: require('kafkajs/package.json').version, codecs: Object.keys(TYPES), cannot: {} }
}

async function produce(question) {
  const producer = connection(question).producer()
  await producer.connect()
  try {
    return await sendBy(producer, question)
  } finally {
    await producer.disconnect()
  }
}

async function sendBy(producer, question) {
  const messages = question.records.map(([partition, timestamp, key, value, headers]) => ({
    partition,
    timestamp: timestamp === null ? undefined : String(timestamp),
    key: decoded(key),
    value: decoded(value),
    headers: Object.fromEntries(headers.map(([name, content]) => [name, decoded(content)])),
  }))
  const compression = TYPES[(question.config || {})['compression.type'] || 'none']
  const results = await producer.send({ topic: question.topic, messages, compression, acks: -1 })
  const next = new Map(results.map(result => [result.partition, Number(result.baseOffset)]))
  return messages.map(({ partition }) => {
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return offset
  })
}

function row(partition, message) {
  const headers = Object.entries(message.headers || {}).map(([name, content]) => [name, encoded(content)])
  return [
    partition, Number(message.offset), Number(message.timestamp), encoded(message.key), encoded(message.value), headers,
  ]
}

// Every consumer has a group here; this one's commits nothing.
async function consume(question) {
  const consumer = connection(question).consumer({
    groupId: `assigned-${process.pid}-${Date.now()}`,
    maxWaitTimeInMs: 20,
    readUncommitted: question.config['isolation.level'] === 'read_uncommitted',
  })
  const rows = []
  const ends = Object.entries(question.ends).filter(([name, end]) => question.starts[name] < end)
  const left = new Map(ends.map(([name, end]) => [Number(name), end])) // the end of the range, if it is not read to it
  await consumer.connect()
  let late
  try {
    await consumer.subscribe({ topics: [question.topic], fromBeginning: true })
    await new Promise((resolve, reject) => {
      late = setTimeout(() => reject(new Error(`timed out after ${rows.length} records`)), TIMEOUT_MS)
      consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
      const isDone = () => !left.size
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          const offset = Number(message.offset)
          if (offset < (question.starts[partition] || 0) || !left.has(partition)) return
          if (offset < left.get(partition)) rows.push(row(partition, message))
          if (offset >= left.get(partition) - 1) left.delete(partition)
          if (isDone()) resolve()
        },
      }).catch(reject)
      const codecs = Object.keys(TYPES).length
      for (let partition = 0; partition < codecs; partition++) {
        if (left.has(partition)) {
          consumer.seek({ topic: question.topic, partition, offset: String(question.starts[partition]) })
        }
      }
      if (isDone()) resolve()
    })
  } finally {
    clearTimeout(late)
    await consumer.disconnect()
  }
  return rows
}

async function offsetForTime(question) {
  const admin = connection(question).admin()
  await admin.connect()
  try {
    const found = await admin.fetchTopicOffsetsByTimestamp(question.topic, question.timestamp)
    return Number(found.find(one => one.partition === question.partition).offset)
  } finally {
    await admin.disconnect()
  }
}

// KafkaJS pushes; records wait here until they are polled, and only polled ones are committed.
let member
let topic
let arrived = []
let polled = new Map()
let wake = () => {}

async function open(question) {
  topic = question.topic
  member = connection(question).consumer({
    groupId: question.group,
    partitionAssigners: [PartitionAssigners.roundRobin],
    sessionTimeout: 6000,
    heartbeatInterval: 200,
    rebalanceTimeout: 10000,
    maxWaitTimeInMs: 100,
    metadataMaxAge: 30000,
  })
  const forget = () => {
    arrived = []
    polled = new Map()
  }
  member.on(member.events.REBALANCING, forget)
  member.on(member.events.GROUP_JOIN, forget)
  await member.connect()
  await member.subscribe({ topics: [topic], fromBeginning: true })
  await member.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      arrived.push(row(partition, message))
      wake()
    },
  })
  return null
}

async function poll(question) {
  if (!arrived.length) {
    await new Promise(resolve => {
      wake = resolve
      setTimeout(resolve, question.timeout_ms)
    })
  }
  const rows = arrived
  arrived = []
  rows.forEach(([partition, offset]) => polled.set(partition, offset + 1))
  return { rows }
}

async function commit() {
  const offsets = [...polled].map(([partition, offset]) => ({ topic, partition, offset: String(offset) }))
  polled = new Map()
  if (offsets.length) await member.commitOffsets(offsets)
  return null
}

async function close() {
  await member.disconnect()
  return null
}

let producer
let transaction

async function begin(question) {
  if (!producer) {
    producer = connection(question).producer({
      transactionalId: question.id, maxInFlightRequests: 1, idempotent: true, retry: { retries: 5 },
    })
    await producer.connect()
  }
  transaction = await producer.transaction()
  return null
}

const send = question => sendBy(transaction, question)

async function end(question) {
  if (question.positions) {
    const partitions = [...polled].map(([partition, offset]) => ({ partition, offset: String(offset) }))
    polled = new Map()
    await transaction.sendOffsets({ consumerGroupId: question.group, topics: [{ topic, partitions }] })
  }
  await (question.commit ? transaction.commit() : transaction.abort())
  return null
}

const ANSWERS = { hello, produce, consume, offset_for_time: offsetForTime, open, poll, commit, close, begin, send, end }

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const question = JSON.parse(line)
    let answer
    try {
      answer = { ok: await ANSWERS[question.do](question) }
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}` }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
