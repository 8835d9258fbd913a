import CSystem
import Foundation
import Testing

@testable import Hutch

/// A codec above stores that know nothing of it: they keep its output, and say of entries what is
/// true of the values.
@Suite struct StoredValuesTests {
  enum Kind: CaseIterable { case heap, log, rows }

  /// Between a value and itself backwards, behind a byte of its own. It counts its calls.
  private final class Backwards {
    var encodes = 0
    var decodes = 0
    /// What it answers, if not 0.
    var fails: Int32 = 0

    static func of(_ context: UnsafeMutableRawPointer?) -> Backwards {
      Unmanaged<Backwards>.fromOpaque(context!).takeUnretainedValue()
    }

    static func output(_ buffer: OpaquePointer?, _ bytes: [UInt8]) -> Int32 {
      let output = Unmanaged<OutputBuffer>.fromOpaque(UnsafeRawPointer(buffer!))
        .takeUnretainedValue()
      guard let room = output.resize(bytes.count) else { return Status.noMemory.code }
      bytes.withUnsafeBytes { _ = memcpy(room, $0.baseAddress!, bytes.count) }
      return 0
    }

    func codec(_ id: UInt32) -> Codec {
      Codec(
        id: id,
        encode: { context, input, size, buffer in
          let codec = Backwards.of(context)
          codec.encodes += 1
          if codec.fails != 0 { return codec.fails }
          let bytes = Array(UnsafeRawBufferPointer(start: input, count: size))
          return Backwards.output(buffer, [0x43] + bytes.reversed())
        },
        decode: { context, input, size, buffer in
          let codec = Backwards.of(context)
          codec.decodes += 1
          if codec.fails != 0 { return codec.fails }
          let bytes = Array(UnsafeRawBufferPointer(start: input, count: size))
          guard bytes.first == 0x43 else { return Status.corrupt.code }
          return Backwards.output(buffer, bytes.dropFirst().reversed())
        }, context: Unmanaged.passUnretained(self).toOpaque(), release: nil)
    }
  }

  private final class Fixture {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let codec = Backwards()
    let medium = HeapStore.Medium()
    let time = TestTime()
    let kind: Kind
    private(set) var opening: Opening!
    var cache: Cache { opening.cache }

    init(_ kind: Kind) throws {
      self.kind = kind
      try open(codecID: 7)
    }

    deinit {
      if opening != nil { _ = opening.close() }
      try? FileManager.default.removeItem(atPath: path)
    }

    /// 0: with no codec.
    func open(codecID: UInt32) throws {
      let options = OpenOptions()
      options.tasks.workers = 0
      options.disk.limits = TierLimits()
      options.disk.chosen = []
      options.disk.kind = kind == .log ? .log : .mixed
      if codecID != 0 {
        options.codec = codec.codec(codecID)
        options.disk.codecID = codecID
      }
      let opener = HeapStore.opener(on: medium)
      let kind = kind
      opening = try Opening.onDirectory(
        path, options, clock: time.clock(),
        by: { directory, options, clock throws(Failure) in
          switch kind {
          case .heap: try opener(directory, options, clock)
          case .log: try LogStorage.open(directory: directory, options: options, clock: clock)
          case .rows: try DiskTier.open(directory: directory, options: options, clock: clock)
          }
        }
      ).opening
    }

    func reopen(codecID: UInt32 = 7) throws {
      expect(opening.close() == nil)
      opening = nil
      try open(codecID: codecID)
    }

    @discardableResult
    func put(_ key: String, _ value: [UInt8], in scope: Tiers = .whole) throws -> Cache.PutResult {
      var spec = Cache.PutSpec()
      return try withBytes("more") { more in
        try withBytes(key) { key in
          spec.extended = Extended(more, tag: key)
          return try value.withUnsafeBytes {
            try cache.put(key, $0, spec, if: .always, in: scope)
          }
        }
      }
    }

    func get(_ key: String, in scope: Tiers = .disk) throws -> [UInt8]? {
      try withBytes(key) { (key) throws(Failure) in
        let block: Block? = try cache.get(key, in: scope)
        return block.unowned.map { Array($0.value) }
      }
    }

    func record(_ key: String, in scope: Tiers = .disk) throws -> Record? {
      try withBytes(key) { (key) throws(Failure) in try cache.info(key, in: scope)?.record }
    }
  }

  @Test(arguments: Kind.allCases, [0, 1, 100, 30_000])
  func aValueComesBack(kind: Kind, size: Int) throws {
    let fixture = try Fixture(kind)
    let value = DiskFixture.bytes(size)
    expect(try fixture.put("key", value).status == .done)
    expect(fixture.codec.encodes == 1 && fixture.codec.decodes == 0)
    for _ in 0..<2 {
      let record = try #require(try fixture.record("key"))
      expect(record.size == size && record.codec == 0 && record.decodedSize == 0)
      expect(record.checksum == 0 && record.extendedSize == 7 && record.tagSize == 3)
      let before = fixture.codec.decodes
      expect(try fixture.get("key") == value)
      expect(fixture.codec.decodes == before + 1)
      try fixture.reopen()
    }
    // By memory, which has the value itself.
    expect(try fixture.get("key", in: .whole) == value)
    let decodes = fixture.codec.decodes
    expect(try fixture.get("key", in: .memory) == value)
    expect(fixture.codec.decodes == decodes)
    expect(try fixture.record("key", in: .memory)?.checksum == value.withUnsafeBytes(Checksum.xxh3))
  }

  @Test(arguments: Kind.allCases)
  func aTouchKeepsWhatTheCodecMade(kind: Kind) throws {
    let fixture = try Fixture(kind)
    try fixture.put("key", [1, 2, 3], in: .disk)
    let hasTouched = try withBytes("key") { (key) throws(Failure) in
      try fixture.cache.touch(key, timeToLive: 1000, timeToIdle: 0, in: .disk)
    }
    expect(hasTouched && fixture.codec.encodes == 1)
    expect(try fixture.get("key") == [1, 2, 3])
    expect(try fixture.record("key")?.size == 3)
  }

  @Test(arguments: Kind.allCases)
  func anEntryOfAnotherCodecIsKeptAndNotSeen(kind: Kind) throws {
    let fixture = try Fixture(kind)
    try fixture.put("key", [1, 2, 3])
    try fixture.reopen(codecID: 0)
    expect(try fixture.get("key") == nil && fixture.record("key") == nil)
    try fixture.put("plain", [4])
    try fixture.reopen(codecID: 8)
    expect(try fixture.get("key") == nil && fixture.record("key") == nil)
    expect(try fixture.get("plain") == [4])
    let added = try withBytes("plain") { key in
      try fixture.cache.put(key, key, Cache.PutSpec(), if: .absent, in: .disk)
    }
    expect(added.status == .exists)
    try fixture.reopen()
    expect(try fixture.get("key") == [1, 2, 3])
    expect(try fixture.get("plain") == [4])
  }

  @Test(arguments: Kind.allCases)
  func aCodecThatFails(kind: Kind) throws {
    let fixture = try Fixture(kind)
    try fixture.put("key", [1, 2, 3])
    try fixture.put("other", [4])
    fixture.codec.fails = Status.unsupported.code
    // No older value is there for one that could not be stored.
    let put = try fixture.put("other", [5])
    expect(put.memory == .stored && put.disk == .failed)
    expect(try fixture.get("other") == nil)
    // An entry that the codec only cannot read now stays.
    #expect(throws: Failure.self) { try fixture.get("key") }
    fixture.codec.fails = 0
    expect(try fixture.get("key") == [1, 2, 3])
    fixture.codec.fails = Status.corrupt.code
    expect(try fixture.get("key") == nil)
    fixture.codec.fails = 0
    expect(try fixture.get("key") == nil && fixture.record("key") == nil)
    let damaged = try fixture.cache.withStorage { (storage) throws(Failure) in
      storage.stats.damaged
    }
    expect(damaged == 1)
  }
}
