// As much of MessagePack as the protocol needs. Integers beyond 2^53 are BigInt.

export function encode(value) {
  if (value === null) return Buffer.from([0xc0])
  if (typeof value === 'boolean') return Buffer.from([value ? 0xc3 : 0xc2])
  if (typeof value === 'bigint' || Number.isInteger(value)) return integer(value)
  if (typeof value === 'number') { const data = Buffer.from([0xcb, 0, 0, 0, 0, 0, 0, 0, 0]); data.writeDoubleBE(value, 1); return data }
  if (typeof value === 'string') return headed(Buffer.from(value), 0xdb)
  if (value instanceof Uint8Array) return headed(value, 0xc6)
  if (Array.isArray(value)) return Buffer.concat([head(0xdd, value.length), ...value.map(encode)])
  const entries = Object.entries(value)
  return Buffer.concat([head(0xdf, entries.length), ...entries.flat().map(encode)])
}

function integer(value) {
  if (value >= 0 && value < 128) return Buffer.from([Number(value)])
  const data = Buffer.from([0xd3, 0, 0, 0, 0, 0, 0, 0, 0])
  data.writeBigInt64BE(BigInt(value), 1)
  return data
}

function head(code, length) { // the widest form of a length is valid for any
  const data = Buffer.from([code, 0, 0, 0, 0])
  data.writeUInt32BE(length, 1)
  return data
}

const headed = (data, code) => Buffer.concat([head(code, data.length), data])

export function decode(data) {
  let at = 0
  const take = count => data.subarray(at, at += count)
  const unsigned = count => Number(wide(count))
  const wide = count => BigInt(`0x${take(count).toString('hex')}`)
  const plain = value => value <= Number.MAX_SAFE_INTEGER && value >= Number.MIN_SAFE_INTEGER ? Number(value) : value
  const array = count => Array.from({ length: count }, next)
  const map = count => Object.fromEntries(Array.from({ length: count }, () => [next(), next()]))
  const text = count => take(count).toString()
  function next() {
    const code = data[at++]
    if (code < 0x80) return code
    if (code < 0x90) return map(code & 15)
    if (code < 0xa0) return array(code & 15)
    if (code < 0xc0) return text(code & 31)
    if (code >= 0xe0) return code - 256
    switch (code) {
      case 0xc0: return null
      case 0xc2: return false
      case 0xc3: return true
      case 0xc4: case 0xc5: case 0xc6: return take(unsigned(1 << code - 0xc4))
      case 0xca: return take(4).readFloatBE()
      case 0xcb: return take(8).readDoubleBE()
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return plain(wide(1 << code - 0xcc))
      case 0xd0: case 0xd1: case 0xd2: case 0xd3: return plain(BigInt.asIntN(8 << code - 0xd0, wide(1 << code - 0xd0)))
      case 0xd9: case 0xda: case 0xdb: return text(unsigned(1 << code - 0xd9))
      case 0xdc: case 0xdd: return array(unsigned(2 << code - 0xdc))
      case 0xde: case 0xdf: return map(unsigned(2 << code - 0xde))
    }
    throw new Error(`MessagePack type 0x${code.toString(16)} is not used by the protocol`)
  }
  return next()
}
