import Foundation
import Testing

@testable import Hutch

/// Random operations on a tier and on a dictionary, which must agree: in every storage kind,
/// across clean ends and kills. A failing run is told by its seed.
@Suite struct DiskModelTests {
  struct Entry: Equatable {
    var value: [UInt8]
    var end: Int64
  }

  struct Random: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
      state &+= 0x9E37_79B9_7F4A_7C15
      var z = state
      z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
      z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
      return z ^ z >> 31
    }
  }

  @Test(arguments: [StorageKind.mixed, .sqlite, .file], 0..<2)
  func agreesWithADictionary(storage: StorageKind, run: Int) throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = Random(state: seed)
    var options = DiskFixture.unlimited
    options.kind = storage
    options.inlineThreshold = 2000
    var disk = try DiskFixture(options)
    var model: [String: Entry] = [:]

    func alive(_ key: String) -> [UInt8]? {
      guard let entry = model[key], entry.end > disk.moment.time else { return nil }
      return entry.value
    }

    for step in 0..<600 {
      let key = "key-\(Int.random(in: 0..<60, using: &random))"
      let context = "seed \(seed), step \(step), \(key)"
      switch Int.random(in: 0..<100, using: &random) {
      case 0..<40:
        let size = Int.random(
          in: 0..<(Bool.random(using: &random) ? 200 : 6000), using: &random)
        let value = DiskFixture.bytes(size, seed: UInt64(step + 1))
        let seconds = Int64.random(in: 0..<30, using: &random)
        let live = seconds < 20 ? 0 : seconds * second
        let existed = alive(key) != nil
        let write = disk.put(key, value, timeToLive: live)
        expect(write.outcome == .stored && write.existed == existed, "\(context)")
        model[key] = Entry(
          value: value, end: live == 0 ? Int64.max : disk.moment.time + live)
      case 40..<70:
        expect(try disk.get(key) == alive(key), "\(context)")
      case 70..<80:
        let existed = alive(key) != nil
        expect(disk.remove(key).existed == existed, "\(context)")
        model[key] = nil
      case 80..<86:
        let existed = alive(key) != nil
        expect(try disk.touch(key, timeToLive: 25 * second).existed == existed, "\(context)")
        if existed { model[key]!.end = disk.moment.time + 25 * second }
      case 86..<92:
        disk.time.advance(seconds: Double.random(in: 0..<5, using: &random))
      case 92..<95:
        _ = disk.tier.maintain(at: disk.moment)
      case 95..<96:
        disk.clear()
        model = [:]
      case 96..<98:
        let expected = model.keys.filter { alive($0) != nil }.sorted()
        expect(
          try disk.keys(page: Int.random(in: 1...20, using: &random)) == expected, "\(context)")
      case 98:
        try disk.reopen()
      default:
        // Killed, and opened by another process: its directory goes on.
        let killed = try disk.copyOfKilled()
        expect(disk.close() == nil)
        try killed.open()
        disk = killed
      }
    }
    for key in model.keys { expect(try disk.get(key) == alive(key), "seed \(seed), \(key)") }
    disk.maintain()
    expect(
      disk.tier.stats.count == UInt64(model.keys.filter { alive($0) != nil }.count),
      "seed \(seed)")
    disk.checkInvariants()
  }

  /// Many threads, each with keys of its own, below limits and while maintenance runs: what a
  /// read gives is the newest of its key, or nothing.
  @Test func threadsSeeTheirNewest() throws {
    let limits = TierLimits(
      cost: 3_000_000, count: 400, maxEntry: TierLimits.quarter,
      ages: Ages(timeToLive: 50 * second, timeToIdle: 20 * second))
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 4000, limits: limits))
    DispatchQueue.concurrentPerform(iterations: 6) { thread in
      if thread == 0 {
        for _ in 0..<200 {
          _ = disk.tier.maintain(at: disk.moment)
          disk.time.advance(seconds: 0.5)
          _ = try! disk.keys(page: 50)
        }
        return
      }
      var random = Random(state: UInt64(thread))
      var newest: [String: UInt64] = [:]
      for step in 0..<600 {
        let key = "t\(thread)-\(Int.random(in: 0..<100, using: &random))"
        switch Int.random(in: 0..<10, using: &random) {
        case 0..<4:
          let seed = UInt64(step + 1)
          let size = step % 10 == 0 ? 9000 : 300
          expect(disk.put(key, DiskFixture.bytes(size, seed: seed)).outcome == .stored)
          newest[key] = seed
        case 4:
          disk.remove(key)
          newest[key] = nil
        case 5:
          _ = try! disk.touch(key)
        default:
          guard let value = try! disk.get(key) else { continue }
          guard let seed = newest[key] else {
            Issue.record("a removed entry is back")
            continue
          }
          expect(value == DiskFixture.bytes(value.count, seed: seed))
        }
      }
    }
    disk.maintain()
    disk.checkInvariants()
  }
}
