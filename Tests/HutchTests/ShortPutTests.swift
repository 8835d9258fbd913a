import CSystem
import Testing

@testable import Hutch

/// The short path of puts stores what it is asked to, and leaves a sound tier.
@Suite struct ShortPutTests {
  /// What was put last under a key.
  private struct Written {
    var value: [UInt8]
    var expires: Int64
  }

  private let extended = Array("py:int".utf8)

  @Test(arguments: [EvictionPolicy.adaptive, .lru, .lfu, .fifo])
  func randomPutsAreFound(_ policy: EvictionPolicy) throws {
    let (tier, clock, path) = try tierWithHits(count: 700, policy: policy)
    tier.setUpkeep(true)
    var random = Random(seed: testSeed)
    var written: [UInt64: Written] = [:]
    var (done, hits, expired) = (0, 0, 0)
    // Tests that run beside this one may leave holes in the process's heap: then puts go the long
    // way.
    var tight = 0
    for step in 0..<(isLong ? 60_000 : 20_000) {
      let number = UInt64.random(in: 0..<1000, using: &random)
      let name = String(repeating: "k", count: Int(number % 20)) + "\(number)"
      try withBytes(name) { key in
        let hash = path.hash(key.baseAddress!, key.count)
        if step % 3 == 0 {
          let found = tier.get(key, hash, at: clock.moment())
          let last = written[number]
          guard let found = found.unowned else {
            if let last, last.expires != 0, last.expires <= clock.now { expired += 1 }
            return
          }
          hits += 1
          expect(last.map { found.value.elementsEqual($0.value) } == true)
          expect(found.expires == last?.expires)
          return
        }
        let now = path.now
        // None, a long life, or sometimes one that has ended: then puts go the long way for a while.
        let ends: [Int64] = [0, now + 3_600_000_000_000, now]
        let choice = Int.random(in: 0..<128, using: &random)
        let expires = ends[choice == 0 ? 2 : choice % 2]
        let value = [UInt8](
          repeating: UInt8(truncatingIfNeeded: step),
          count: Int.random(in: 0..<60, using: &random))
        let put = value.withUnsafeBytes { value in
          extended.withUnsafeBytes { extended in
            tier.putShortly(
              ShortEntry(
                key: key.baseAddress!, keySize: key.count,
                value: value.baseAddress ?? key.baseAddress!, valueSize: value.count,
                extended: number % 2 == 0 ? extended : Bytes(start: nil, count: 0),
                expires: expires),
              hash, at: now)
          }
        }
        switch put {
        case .done: done += 1
        case .unusual:
          if Heap.isTight { tight += 1 }
          let record = Record(created: now, expires: expires)
          try value.withUnsafeBytes { value in
            let block = try Block.copying(
              key: key, value: value, extended: Extended(), record: record)
            _ = try tier.put(block, hash, at: .at(now))
          }
        case .unfinished(let block):
          try tier.finishShort(Block(owning: block), hash, at: .at(now))
        }
        written[number] = Written(value: value, expires: expires)
      }
      if step % 1000 == 0 { expect(tier.violation() == nil, "seed \(testSeed), step \(step)") }
    }
    expect(tier.violation() == nil, "seed \(testSeed)")
    expect(done + tight > 1000 && hits > 1000 && expired > 10, "seed \(testSeed)")
    expect(tier.stats.evictions > 0)
  }
}
