// Loads a trace into Perfetto's engine the way its page does, and counts its slices, or answers statements.
//
//     node perfetto.mjs FOLDER TRACE [STATEMENTS]     FOLDER holds engine_bundle.js and trace_processor*.wasm
//
// STATEMENTS is a JSON object of SQL by id. Each answer is a line of JSON: its id, its rows, and the CPU times
// of asking first and again in seconds.
// The bundle is a web worker: it gets the few globals of one. Requests and answers are protobuf (TraceProcessorRpc).
import { openSync, readFileSync, readSync } from 'node:fs'
import vm from 'node:vm'

const [folder, trace, statements] = process.argv.slice(2)
const [APPEND, FINALIZE, QUERY] = [1, 2, 3]
const PIECE = 32 << 20

function varint(number) {
  return number < 128 ? [number] : [(number % 128) | 128, ...varint(Math.floor(number / 128))]
}
const integer = (field, number) => Buffer.from([...varint(field * 8), ...varint(number)])
const bytes = (field, data) => Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(data.length)]), data])

const scope = {
  WorkerGlobalScope: class {},
  location: { href: 'http://localhost/engine_bundle.js', protocol: 'http:', host: 'localhost' },
  XMLHttpRequest: class {
    open(_, address) {
      this.name = address.split('/').pop()
    }
    send() {
      this.response = new Uint8Array(readFileSync(`${folder}/${this.name}`)).buffer
    }
  },
  console: { log() {}, warn() {}, error: console.error },
  setTimeout, performance, TextDecoder, TextEncoder, URL, Uint8Array, crypto,
}
scope.self = scope
vm.runInNewContext(readFileSync(`${folder}/engine_bundle.js`, 'utf8'), scope)
await new Promise((ready) => setTimeout(ready, 0))

let answers = []
let sequence = 0
const port = { postMessage: (data) => answers.push(Buffer.from(data)) }
scope.onmessage({ data: port })

function request(kind, ...parameters) {
  answers = []
  const message = Buffer.concat([integer(1, sequence++), integer(2, kind), ...parameters])
  port.onmessage({ data: new Uint8Array(bytes(1, message)) })
  return Buffer.concat(answers)
}

const file = openSync(trace)
const piece = Buffer.alloc(PIECE)
for (let size; (size = readSync(file, piece)); ) request(APPEND, bytes(101, piece.subarray(0, size)))
request(FINALIZE)

function readVarint(data, at) {
  let [value, scale, byte] = [0n, 0n, 0]
  do {
    byte = data[at++]
    value |= BigInt(byte & 127) << scale
    scale += 7n
  } while (byte > 127)
  return [BigInt.asIntN(64, value), at]
}

/** Return the fields of a message by number: numbers, or pieces of bytes. */
function fields(data) {
  const found = {}
  for (let at = 0; at < data.length; ) {
    let [key, value] = [0n, 0n]
    ;[key, at] = readVarint(data, at)
    if (key % 8n === 2n) {
      let size
      ;[size, at] = readVarint(data, at)
      value = data.subarray(at, (at += Number(size)))
    } else if (key % 8n === 1n) value = data.subarray(at, (at += 8))
    else [value, at] = readVarint(data, at)
    ;(found[key / 8n] ??= []).push(value)
  }
  return found
}

function packed(pieces = []) {
  const values = []
  for (const piece of pieces)
    for (let at = 0, value; at < piece.length; values.push(Number(value))) [value, at] = readVarint(piece, at)
  return values
}

/** Return the rows of a statement (QueryResult). */
function query(sql) {
  const results = (fields(request(QUERY, bytes(103, bytes(1, Buffer.from(sql)))))[1] ?? [])
    .flatMap((message) => fields(message)[203] ?? [])
    .map(fields)
  const [columns, cells] = [[], []]
  for (const { 1: names = [], 2: [error] = [], 3: batches = [] } of results) {
    if (error) throw new Error(error.toString())
    columns.push(...names.map(String))
    for (const batch of batches.map(fields)) {
      const [integers, texts] = [packed(batch[2]), String(batch[5]?.[0] ?? '').split('\0')]
      const doubles = Buffer.concat(batch[3] ?? [])
      let place = 0
      for (const kind of packed(batch[1]))
        if (kind === 1) cells.push(null)
        else if (kind === 2) cells.push(integers.shift())
        else if (kind === 3) cells.push(doubles.readDoubleLE(8 * place++))
        else cells.push(texts.shift())
    }
  }
  return Array.from({ length: cells.length / columns.length }, (_, row) =>
    cells.slice(row * columns.length, (row + 1) * columns.length),
  )
}

const [[slices]] = query('select count(*) as slices from slice')
if (!slices) throw new Error('the engine has no slices')
for (const [id, sql] of Object.entries(JSON.parse(statements ?? '{}'))) {
  let rows = []
  const [first, cpu] = [1, 2].map(() => {
    const before = process.cpuUsage()
    rows = query(sql)
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1e6
  })
  console.log(JSON.stringify({ id, first, cpu, rows }))
}
