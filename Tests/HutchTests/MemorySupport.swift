import CSystem

@testable import Hutch

/// What the tests of the memory tier share: bytes from text, blocks, a clock that stands
/// still, random numbers that can be replayed.

func withBytes<R: ~Copyable, E: Error>(
  _ text: String, _ body: (Bytes) throws(E) -> R
) throws(E) -> R {
  let array = Array(text.utf8)
  return try array.span.withUnsafeBytes(body)
}

/// Time that moves when it is told to.
final class HandClock {
  private let time = UnsafeMutablePointer<Int64>.allocate(capacity: 1)
  let clock: Clock

  init(_ start: Int64 = 1_000_000_000_000_000_000) {
    time.pointee = start
    clock = Clock(
      function: { $0!.assumingMemoryBound(to: Int64.self).pointee }, context: time, release: nil)
  }

  deinit { time.deallocate() }

  var now: Int64 {
    get { time.pointee }
    set { time.pointee = newValue }
  }

  var moment: Moment { clock.moment() }
}

/// SplitMix64 (Steele, Lea, Flood, 2014).
struct Random: RandomNumberGenerator {
  var state: UInt64

  init(seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ z >> 30) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
    return z ^ z >> 31
  }
}

/// True with HUTCH_LONG: tests take their time.
let isLong = getenv("HUTCH_LONG") != nil

/// HUTCH_SEED replays a run; otherwise every run is another. Failures print the seed.
let testSeed: UInt64 = {
  // Decimal, or hexadecimal as the C tests print theirs.
  if let text = getenv("HUTCH_SEED") { return strtoull(text, nil, 0) }
  var random = SystemRandomNumberGenerator()
  return random.next() >> 16
}()

extension MemoryTier {
  /// The value's size; copied if it fits. Nil: there is no entry.
  func copy(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, into buffer: UnsafeMutableRawPointer,
    capacity: Int
  ) -> Int? {
    let found = look(
      key, hash, at: moment, into: UnsafeMutableRawBufferPointer(start: buffer, count: capacity),
      .value, countsMiss: true)
    found.reference?.release()
    return found.status == .done ? found.size : nil
  }
}

/// A tier of so many entries with the default policy, its clock, and the short path of its hits.
func tierWithHits(
  count: UInt64, policy: EvictionPolicy = .adaptive, cores: Int = 2,
  clock: Clock = Clock(function: nil, context: nil, release: nil)
) throws -> (tier: MemoryTier, clock: Clock, path: HitPath) {
  var limits = TierLimits()
  limits.count = count
  let tier = try MemoryTier(
    limits: limits, policy: policy, hash: KeyedHash(), versions: Versions(from: 1),
    cores: cores)
  tier.prepareHits(clock, isAll: true)
  return (tier, clock, tier.hits(isMemory: true))
}

extension MemoryTier {
  /// Gives one of the shards a bias (ShardLock.swift), by a random number.
  func giveBias(toAnyOf number: UInt64) {
    let lock = lock(Int(number % UInt64(shardCount)))
    lock.lock()
    lock.giveBias()
    lock.unlock()
  }
}

/// A tier with a clock, by text.
final class Bench {
  let hand = HandClock()
  let tier: MemoryTier
  var version: UInt64 = 0

  init(
    _ limits: TierLimits = TierLimits(), policy: EvictionPolicy = .lru, hash: KeyedHash? = nil
  ) throws {
    tier = try MemoryTier(
      limits: limits, policy: policy, hash: hash ?? KeyedHash(), versions: Versions(from: 1))
  }

  func block(
    _ key: String, _ value: String = "", version: UInt64? = nil,
    _ change: (inout Record) -> Void = { _ in }
  ) throws -> Block {
    if let version {
      self.version = max(version, self.version)
    } else {
      self.version += 1
    }
    var record = Record(version: version ?? self.version, created: hand.now, accessed: hand.now)
    change(&record)
    return try withBytes(key) { key throws(Failure) -> Block in
      try withBytes(value) { value throws(Failure) -> Block in
        try Block.copying(
          key: key, value: value, extended: Extended(), record: record)
      }
    }
  }

  func hash(_ key: String) -> UInt64 { withBytes(key) { tier.hash($0) } }

  @discardableResult
  func put(
    _ key: String, _ value: String = "", version: UInt64? = nil,
    if condition: WriteCondition = .always, isBacked: Bool = false,
    _ change: (inout Record) -> Void = { _ in }
  ) throws -> MemoryPutResult {
    let block = try block(key, value, version: version, change)
    return try tier.put(
      block, hash(key), at: hand.moment, condition: condition, isBacked: isBacked)
  }

  func get(_ key: String) -> String? {
    withBytes(key) { bytes in
      guard let block = tier.get(bytes, tier.hash(bytes), at: hand.moment) else { return nil }
      return String(decoding: block.unowned.value, as: UTF8.self)
    }
  }

  func version(of key: String) -> UInt64? {
    withBytes(key) { bytes in
      guard let block = tier.peek(bytes, tier.hash(bytes), at: hand.moment) else { return nil }
      return block.unowned.version
    }
  }

  func contains(_ key: String) -> Bool { version(of: key) != nil }

  func info(_ key: String) -> Record? {
    withBytes(key) { tier.info($0, tier.hash($0), at: hand.moment) }
  }

  func copy(_ key: String, capacity: Int) -> (size: Int?, bytes: String) {
    let buffer = UnsafeMutableRawPointer.allocate(byteCount: max(1, capacity), alignment: 1)
    defer { buffer.deallocate() }
    return withBytes(key) { bytes in
      let size = tier.copy(
        bytes, tier.hash(bytes), at: hand.moment, into: buffer, capacity: capacity)
      let copied = UnsafeRawBufferPointer(
        start: buffer, count: size.map { $0 <= capacity ? $0 : 0 } ?? 0)
      return (size, String(decoding: copied, as: UTF8.self))
    }
  }

  @discardableResult
  func remove(_ key: String, if condition: WriteCondition = .always) -> Bool {
    withBytes(key) { bytes in
      tier.remove(bytes, tier.hash(bytes), at: hand.moment, condition: condition) != nil
    }
  }

  func setBacked(_ key: String, version: UInt64, _ isBacked: Bool) {
    _ = withBytes(key) { tier.setBacked($0, tier.hash($0), version: version, isBacked) }
  }

  func keys(onlyUnbacked: Bool = false) -> [String] {
    var position: UInt64 = 0
    var keys: [String] = []
    while tier.blocks(
      after: &position, limit: 10, at: hand.moment, onlyUnbacked ? .unbacked : .all,
      visit: { keys.append(String(decoding: $0.key, as: UTF8.self)) }) > 0
    {}
    return keys
  }

  func maintain() { while tier.maintain(at: hand.moment) {} }

  var violation: String? { tier.violation().map { "\($0)" } }
}

extension TierLimits {
  init(count: UInt64) {
    self.init()
    self.count = count
  }

  init(cost: UInt64) {
    self.init()
    self.cost = cost
  }
}
