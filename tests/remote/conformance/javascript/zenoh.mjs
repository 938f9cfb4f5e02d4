// As much of Zenoh as a client of a site needs, for Node.js without packages: one TCP link in client mode, a liveliness
// token, queries with their replies. There is no official Zenoh package for Node.js that speaks TCP; in other languages
// use Zenoh's own library instead of this file.
//
// On the link, each batch has its length in front (u16, little-endian). A batch is one transport message; a frame has
// network messages in it. Numbers without a fixed size are varints: 7 bits in each byte, the lowest first.

import net from 'node:net'
import { randomBytes } from 'node:crypto'

const PROTOCOL = 9
const INIT = 0x01, OPEN = 0x02, CLOSE = 0x03, KEEP_ALIVE = 0x04, FRAME = 0x05, FRAGMENT = 0x06 // transport messages
const DECLARE = 0x1e, REQUEST = 0x1c, RESPONSE = 0x1b, RESPONSE_FINAL = 0x1a // network messages
const KEY = 0x00, TOKEN = 0x06 // declarations
const QUERY = 0x03, REPLY = 0x04, PUT = 0x01 // bodies
const CLIENT = 2 // kind of session
const MORE = 0x80 // flag of a header: extensions follow
const LEASE_S = 10

class Reader {
  constructor(data) { this.data = data; this.at = 0 }
  get isEmpty() { return this.at >= this.data.length }
  u8() { return this.data[this.at++] }
  varint() {
    for (let value = 0, factor = 1; ; factor *= 128) {
      const byte = this.u8()
      value += (byte & 0x7f) * factor
      if (byte < 0x80) return value
    }
  }
  bytes(count = this.varint()) { return this.data.subarray(this.at, this.at += count) }
  key(header) { this.varint(); if (header & 0x20) this.bytes() }
  encoding() { if (this.varint() & 1) this.bytes() }
  extensions(header) { // the content of those that have bytes, by their ids
    const found = {}
    for (let more = header & MORE; more;) {
      const extension = this.u8()
      const kind = extension & 0x60
      if (kind === 0x20) this.varint()
      else if (kind === 0x40) found[extension & 0x0f] = this.bytes()
      more = extension & MORE
    }
    return found
  }
}

function varint(value) {
  const bytes = []
  for (; value > 127; value = Math.floor(value / 128)) bytes.push(value % 128 + 128)
  return Buffer.from([...bytes, value])
}

const sized = data => Buffer.concat([varint(data.length), data])
const key = text => Buffer.concat([varint(0), sized(Buffer.from(text))]) // no number, but the whole name

export class Session {
  #socket; #batches = []; #arrived; #queries = new Map(); #numbers = 1; #frames = 1; #fragments = []; #beat

  static async open(host, port) {
    const session = new Session()
    await session.#connect(host, port)
    return session
  }

  async #connect(host, port) {
    const id = randomBytes(16)
    this.#socket = net.connect(port, host)
    this.#socket.setNoDelay(true)
    this.#receive()
    this.#send(Buffer.from([INIT, PROTOCOL, (id.length - 1) << 4 | CLIENT, ...id]))
    const init = new Reader(await this.#batch())
    const header = init.u8()
    init.u8() // the protocol of the router
    init.bytes((init.u8() >> 4) + 1)
    if (header & 0x40) init.bytes(3) // its sizes
    const cookie = init.bytes()
    this.#send(Buffer.concat([Buffer.from([OPEN | 0x40]), varint(LEASE_S), varint(this.#frames), sized(cookie)]))
    await this.#batch()
    this.#beat = setInterval(() => this.#send(Buffer.from([KEEP_ALIVE])), LEASE_S * 250)
  }

  // --- batches ---

  #send(batch) {
    if (batch.length > 65535) throw new Error('this client sends no fragments')
    const length = Buffer.alloc(2)
    length.writeUInt16LE(batch.length)
    this.#socket.write(Buffer.concat([length, batch]))
  }

  #receive() {
    let rest = Buffer.alloc(0)
    this.#socket.on('data', data => {
      rest = Buffer.concat([rest, data])
      while (rest.length >= 2 && rest.length >= 2 + rest.readUInt16LE()) {
        const batch = rest.subarray(2, 2 + rest.readUInt16LE())
        rest = rest.subarray(2 + batch.length)
        if (this.#beat) this.#take(new Reader(batch))
        else if (this.#arrived) this.#arrived(batch)
        else this.#batches.push(batch)
      }
    })
    this.#socket.on('close', () => this.#fail(new Error('the link is closed')))
    this.#socket.on('error', error => this.#fail(error))
  }

  #batch() { // the next one, before the session is open
    if (this.#batches.length) return this.#batches.shift()
    return new Promise(resolve => { this.#arrived = batch => { this.#arrived = null; resolve(batch) } })
  }

  #fail(error) {
    clearInterval(this.#beat)
    for (const query of this.#queries.values()) query.reject(error)
    this.#queries.clear()
  }

  #take(batch) {
    const header = batch.u8()
    const kind = header & 0x1f
    if (kind === CLOSE) this.#fail(new Error('the router closed the session'))
    if (kind !== FRAME && kind !== FRAGMENT) return
    batch.varint()
    batch.extensions(header)
    if (kind === FRAME) return this.#messages(batch)
    this.#fragments.push(Buffer.from(batch.bytes(batch.data.length - batch.at)))
    if (header & 0x40) return // more of them follow
    const whole = Buffer.concat(this.#fragments)
    this.#fragments = []
    this.#messages(new Reader(whole))
  }

  // --- messages ---

  #messages(frame) {
    while (!frame.isEmpty) {
      const header = frame.u8()
      const kind = header & 0x1f
      if (kind === DECLARE) this.#declaration(frame, header)
      else if (kind === RESPONSE) this.#response(frame, header)
      else if (kind === RESPONSE_FINAL) {
        const number = frame.varint()
        frame.extensions(header)
        this.#queries.get(number)?.resolve(null) // nothing, unless a reply came before
        this.#queries.delete(number)
      } else return // nothing that a client has asked for
    }
  }

  #declaration(frame, header) { // names of keys, which are not needed here
    if (header & 0x20) frame.varint()
    frame.extensions(header)
    const what = frame.u8()
    if ((what & 0x1f) !== KEY) throw new Error(`declaration ${what & 0x1f} was not asked for`)
    frame.varint()
    frame.key(what)
    frame.extensions(what)
  }

  #response(frame, header) {
    const number = frame.varint()
    frame.key(header)
    frame.extensions(header)
    const body = frame.u8()
    const isReply = (body & 0x1f) === REPLY
    if (isReply && body & 0x20) frame.u8()
    if (!isReply && body & 0x40) frame.encoding()
    frame.extensions(body)
    const reply = isReply ? this.#put(frame) : { error: Buffer.from(frame.bytes()).toString() }
    this.#queries.get(number)?.resolve(reply)
  }

  #put(frame) {
    const header = frame.u8()
    if ((header & 0x1f) !== PUT) throw new Error('a reply has no data')
    if (header & 0x20) { frame.varint(); frame.bytes() } // when
    if (header & 0x40) frame.encoding()
    const { 3: attachment } = frame.extensions(header)
    return { attachment, payload: frame.bytes() }
  }

  #frame(message) {
    this.#send(Buffer.concat([Buffer.from([FRAME | 0x20]), varint(this.#frames++), message]))
  }

  declareToken(name) {
    const head = Buffer.from([DECLARE, TOKEN | 0x20])
    this.#frame(Buffer.concat([head, varint(this.#numbers++), key(name)]))
  }

  // A query; resolves to {attachment, payload}, to {error}, or to null if it ends without a reply.
  get(name, attachment, payload = Buffer.alloc(0)) {
    const number = this.#numbers++
    const block = Buffer.from([0x21, 0x1d]) // quality of service: block, do not wait for other messages
    const body = payload.length ? [Buffer.from([0x43 | MORE]), sized(Buffer.concat([varint(0), payload]))] : []
    this.#frame(Buffer.concat([
      Buffer.from([REQUEST | 0x20 | MORE]), varint(number), key(name), block,
      Buffer.from([QUERY | 0x20 | MORE, 1]), // no consolidation
      ...body, Buffer.from([0x45]), sized(attachment),
    ]))
    return new Promise((resolve, reject) => this.#queries.set(number, { resolve, reject }))
  }

  close() {
    clearInterval(this.#beat)
    this.#send(Buffer.from([CLOSE | 0x20, 0]))
    this.#socket.end()
  }
}
