// A client of a site in JavaScript, written from docs/protocol.md. Run: node client.mjs HOST PORT SITE
//
// It puts three products, one of them twice as if its reply had been lost, reads them, consumes them at a station,
// and prints what it saw as JSON. It does not verify the checksums of records (XXH3), which a real client should.

import { randomBytes } from 'node:crypto'
import { blake2b } from './blake2b.mjs'
import { decode, encode } from './msgpack.mjs'
import { Session } from './zenoh.mjs'

const VERSIONS = [9, 9]
const PAUSE_MS = 50

class Client {
  #session; #key; #number = 0; #id = randomBytes(16)
  version = 0; queue = null

  static async connect(host, port, site) {
    const client = new Client()
    client.#session = await Session.open(host, port)
    client.#key = `headrace/call/${site}`
    client.#session.declareToken(`headrace/client/${site}/${blake2b(client.#id, 16).toString('hex')}`)
    client.version = (await client.#ask(encode([0, ...VERSIONS]))).version
    client.here = await client.call('who')
    client.queue = client.here.queue
    return client
  }

  newNumber() { return ++this.#number }

  // A call; with a number if it must be executed once. Calls are made one after the other, so each is the oldest.
  call(type, fields = {}, { number = 0, payload } = {}) {
    return this.#ask(encode([this.version, this.#id, this.queue, number, number, { type, ...fields }]), payload)
  }

  async #ask(head, payload) {
    for (;;) {
      const reply = await this.#session.get(this.#key, head, payload)
      if (reply?.attachment) return this.#read(reply)
      if (reply?.error && reply.error !== 'busy' && reply.error !== 'Timeout') throw new Error(`refused: ${reply.error}`)
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS)) // and repeat it, with the same number
    }
  }

  #read({ attachment, payload }) {
    const reply = decode(attachment)
    if (reply.type === 'failure') throw new Error(`${reply.error}: ${reply.problem}`)
    if (reply.type === 'products') reply.products = products(reply.places ?? Buffer.alloc(0), payload)
    return reply
  }

  put(feed, ident, payload, number = this.newNumber()) {
    const facts = ident ? {} : { signature: randomBytes(16) }
    return this.call('put', { feed, ident, facts }, { number, payload: Buffer.from(payload) })
  }

  close() { this.#session.close() }
}

// The products of a reply: the records in its payload, each with its place.
function products(places, records) {
  const found = []
  for (let place = 0, at = 0; place < places.length; place += 24) {
    const [payloadBytes, identBytes] = [records.readUInt32LE(at + 8), records.readUInt16LE(at + 12)]
    const [feedBytes, originBytes, propertiesBytes] = [records[at + 14], records[at + 15], records.readUInt16LE(at + 52)]
    const feedAt = at + 56, originAt = feedAt + feedBytes, identAt = originAt + originBytes
    const end = identAt + identBytes + propertiesBytes + (records[at + 3] & 0x40 ? 8 : 0)
    const payloadAt = at + Math.ceil((end - at) / 8) * 8
    found.push({
      sequence: Number(places.readBigUInt64LE(place)), deliveries: places.readUInt16LE(place + 16),
      feed: records.toString('utf8', feedAt, originAt), origin: records.toString('utf8', originAt, identAt),
      ident: records.toString('utf8', identAt, identAt + identBytes),
      payload: records.toString('utf8', payloadAt, payloadAt + payloadBytes),
    })
    at += Math.ceil((payloadAt + payloadBytes - at) / 8) * 8
  }
  return found
}

const [host, port, site] = process.argv.slice(2)
const client = await Client.connect(host, Number(port), site)
const seen = { version: client.version, site: client.here.site, dedup: client.here.config.dedup }

seen.put = [(await client.put('wx/text/metar', 'KDEN', 'METAR KDEN')).value, (await client.put('wx/text/metar', '', 'TAF')).value]
const number = client.newNumber()
const twice = [await client.put('a', 'once', 'x', number), await client.put('a', 'once', 'x', number)]
seen.twice = twice.map(reply => reply.value)
await client.call('openstation', { name: 'js', start: 'oldest', options: {} }, { number: client.newNumber() })
seen.read = (await client.call('next', { selection: '**', position: 'oldest', limit: 10, bytes_limit: 1 << 20 })).products

const { attachment } = await client.call('attach', { station: 'js', keep_s: 10 }, { number: client.newNumber() })
const got = client.newNumber()
const batch = await client.call('get', { attachment, n: 10, wait_s: 5 }, { number: got })
const again = await client.call('get', { attachment, n: 10, wait_s: 5 }, { number: got })
seen.got = [batch, again].map(reply => reply.products.map(product => product.payload))
const settle = { attachment, got, count: batch.products.length, how: 'ack' }
seen.settled = (await client.call('settle', settle, { number: client.newNumber() })).type
seen.refused = await client.call('explode').catch(error => error.message)
seen.failed = await client.put('not a feed', '', 'x').catch(error => error.message)
seen.left = (await client.call('leave')).type
client.close()
console.log(JSON.stringify(seen))
