// Loads a trace into Perfetto's engine the way its page does, and counts its slices.
//
//     node perfetto.mjs FOLDER TRACE      FOLDER holds engine_bundle.js and trace_processor*.wasm
//
// The bundle is a web worker: it gets the few globals of one. Requests and answers are protobuf (TraceProcessorRpc).
import { openSync, readFileSync, readSync } from 'node:fs'
import vm from 'node:vm'

const [folder, trace] = process.argv.slice(2)
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
  return Buffer.concat(answers).toString('latin1')
}

const file = openSync(trace)
const piece = Buffer.alloc(PIECE)
for (let size; (size = readSync(file, piece)); ) request(APPEND, bytes(101, piece.subarray(0, size)))
request(FINALIZE)
const answer = request(QUERY, bytes(103, bytes(1, Buffer.from('select count(*) as slices from slice'))))
if (!answer.includes('slices')) throw new Error(`no count in the engine's answer: ${answer}`)
