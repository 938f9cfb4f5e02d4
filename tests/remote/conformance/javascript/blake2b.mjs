// BLAKE2b of one block (up to 128 bytes) without a key, after RFC 7693. Node.js has it with 64 bytes of output only.

const LOW_64 = (1n << 64n) - 1n
const START = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
]
const ORDER = [ // of the words of the block, in each round
  '0123456789abcdef', 'ea489fd61c02b753', 'b8c052fdae367194', '7931dcbe265a40f8', '905724afe1bc683d',
  '2c6a0b834d75fe19', 'c51fed4a0763928b', 'db7ec13950f4862a', '6fe9b308c2d714a5', 'a2847615fb9e3cd0',
  '0123456789abcdef', 'ea489fd61c02b753',
]
const MIXED = ['048c', '159d', '26ae', '37bf', '05af', '16bc', '278d', '349e']

const digits = text => [...text].map(digit => parseInt(digit, 16))
const rotated = (word, bits) => (word >> bits | word << 64n - bits) & LOW_64

export function blake2b(data, length) {
  const block = Buffer.alloc(128)
  block.set(data)
  const words = Array.from({ length: 16 }, (_, at) => block.readBigUInt64LE(8 * at))
  const first = [START[0] ^ 0x01010000n ^ BigInt(length), ...START.slice(1)]
  const state = [...first, ...START]
  state[12] ^= BigInt(data.length)
  state[14] ^= LOW_64 // the last block
  for (const order of ORDER.map(digits)) {
    MIXED.map(digits).forEach(([a, b, c, d], turn) => {
      for (const [word, right, left] of [[order[2 * turn], 32n, 24n], [order[2 * turn + 1], 16n, 63n]]) {
        state[a] = state[a] + state[b] + words[word] & LOW_64
        state[d] = rotated(state[d] ^ state[a], right)
        state[c] = state[c] + state[d] & LOW_64
        state[b] = rotated(state[b] ^ state[c], left)
      }
    })
  }
  const digest = Buffer.alloc(64)
  first.forEach((word, at) => digest.writeBigUInt64LE(word ^ state[at] ^ state[at + 8], 8 * at))
  return digest.subarray(0, length)
}
