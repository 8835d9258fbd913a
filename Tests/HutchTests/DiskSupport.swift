import CSQLite
import CSystem
import Foundation
import Synchronization
import Testing

@testable import Hutch

/// A time that tests set: what a host's clock gives.
final class TestTime: @unchecked Sendable {
  let now = Atomic<Int64>(1_700_000_000_000_000_000)

  func advance(seconds: Double) {
    now.wrappingAdd(Int64(seconds * 1e9), ordering: .relaxed)
  }

  func clock() -> Clock {
    Clock(
      function: { context in
        Unmanaged<TestTime>.fromOpaque(context!).takeUnretainedValue().now.load(
          ordering: .relaxed)
      },
      context: Unmanaged.passRetained(self).toOpaque(),
      release: { Unmanaged<TestTime>.fromOpaque($0!).release() })
  }
}

/// A thread that draws versions, as writes do, while another one opens the directory again.
final class DrawingThread: @unchecked Sendable {
  private let next: UnsafeMutablePointer<Atomic<UInt64>>
  private let isOver = Atomic<Bool>(false)
  private let hasEnded = DispatchSemaphore(value: 0)
  private var areOrdered = true

  init(from next: UnsafeMutablePointer<Atomic<UInt64>>) {
    self.next = next
    let hasBegun = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      hasBegun.signal()
      self.draw()
      self.hasEnded.signal()
    }
    hasBegun.wait()
  }

  private func draw() {
    var last: UInt64 = 0
    while !isOver.load(ordering: .relaxed) {
      let version = next.pointee.wrappingAdd(1, ordering: .relaxed).oldValue
      if version <= last { areOrdered = false }
      last = version
    }
  }

  /// True if each version was above the one before.
  func end() -> Bool {
    isOver.store(true, ordering: .relaxed)
    hasEnded.wait()
    return areOrdered
  }
}

/// A block in an object, for places that hold only what can be copied.
final class BlockBox {
  private var block: Block?

  init(_ block: consuming Block) { self.block = consume block }

  func take() -> Block? { block.take() }

  /// Valid until the block is taken, or this is freed.
  var unowned: UnownedBlock? { block.unowned }
}

/// What is above a tier that has no cache: tests set what they want to know.
final class TestObserver: StorageObserver, @unchecked Sendable {
  var identity: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }
  var onDropped: ((_ key: Bytes) -> Void)?
  var onReturn: ((_ firstVersion: UInt64) -> Void)?
  var onChange: ((_ failure: Failure?) -> Void)?
  var lastAccess: ((_ key: Bytes) -> Int64?)?

  func storeDrops(_ key: Bytes, _ version: UInt64, _ cause: DropCause) {}
  func storeDropped(_ key: Bytes, _ version: UInt64) { onDropped?(key) }
  func storeCommits(_ key: Bytes, _ hash: UInt64, _ version: UInt64, _ mark: UInt32) {}
  func lastAccess(of key: Bytes, _ version: UInt64) -> Int64? { lastAccess?(key) }
  var hasUsed: ((_ key: Bytes, _ version: UInt64) -> Bool)?
  func hasUsed(_ key: Bytes, _ version: UInt64, isOften: Bool) -> Bool {
    hasUsed?(key, version) ?? false
  }
  var quietLines: UInt64 { .max }
  func storeReturns(_ firstVersion: UInt64) { onReturn?(firstVersion) }
  func storeChanged(_ failure: Failure?) { onChange?(failure) }
  func log(_ line: LogLine) { lines.append(line) }
  var lines: [LogLine] = []
}

/// A directory of its own for one test, a tier in it, and what a test does with one.
final class DiskFixture: @unchecked Sendable {
  let path: String
  let time = TestTime()
  var options: StorageOptions
  private(set) var tier: DiskTier!
  private let version = Atomic<UInt64>(0)
  let dropped = Lists()
  let observer = TestObserver()

  final class Lists: @unchecked Sendable {
    let lock = Lock()
    var keys: [String] = []
    var all: [String] { lock.withLock { keys } }
  }

  static let unlimited = StorageOptions(limits: TierLimits())
  /// The id of a row in SQL.
  static let id = "max(slot, ifnull(id, 0))"

  init(
    _ options: StorageOptions = unlimited, opening: Bool = true, at path: String? = nil
  ) throws {
    self.path =
      path ?? NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    self.options = options
    if opening { try open() }
  }

  deinit {
    if tier != nil { _ = close() }
    try? FileManager.default.removeItem(atPath: path)
  }

  func open(hostsClock: Bool = true) throws {
    let directory = try Directory.open(path: path)
    let clock =
      hostsClock ? time.clock() : Clock(function: nil, context: nil, release: nil)
    tier = try DiskTier.open(directory: directory, options: options, clock: clock)
    version.store(tier.firstVersion, ordering: .relaxed)
    tier.watch(by: observer)
    observer.onDropped = { [dropped] key in
      let text = String(decoding: key, as: UTF8.self)
      dropped.lock.withLock { dropped.keys.append(text) }
    }
  }

  @discardableResult
  func close() -> Failure? {
    let failure = tier.close(lastVersion: version.load(ordering: .relaxed) - 1)
    tier = nil
    return failure
  }

  func reopen() throws {
    expect(close() == nil)
    try open()
  }

  /// The directory as a killed process leaves it at this moment, in another fixture.
  func copyOfKilled() throws -> DiskFixture {
    let copy = try DiskFixture(options, opening: false)
    try FileManager.default.copyItem(atPath: path, toPath: copy.path)
    copy.time.now.store(time.now.load(ordering: .relaxed), ordering: .relaxed)
    return copy
  }

  func draw() -> UInt64 { version.wrappingAdd(1, ordering: .relaxed).oldValue }

  var moment: Moment { tier.clock.moment() }

  // MARK: writes

  func write(
    _ kind: StoreWrite.Kind, _ key: [UInt8], _ value: [UInt8] = [], _ record: Record = Record(),
    extended: [UInt8] = [], tag: [UInt8] = []
  ) -> TestWrite {
    var record = record
    record.version = draw()
    if record.created == 0 { record.created = moment.time }
    let block = key.withUnsafeBytes { key in
      value.withUnsafeBytes { value in
        (extended + tag).withUnsafeBytes { extended in
          let extended = Extended(extended, tagSize: UInt8(tag.count))
          return BlockBox(
            try! Block.copying(key: key, value: value, extended: extended, record: record))
        }
      }
    }
    let write = TestWrite(kind, block.take()!, tier.hash)
    write.version = record.version
    write.time = record.created
    return write
  }

  func prepare(_ write: TestWrite) { tier.prepare(write.write.entry!, &write.form) }
  func submit(_ write: TestWrite) { tier.write(&write.write) }
  func complete(_ write: TestWrite) { tier.finish(&write.write) }

  func run(_ write: TestWrite) {
    if write.write.kind == .put { prepare(write) }
    submit(write)
    complete(write)
  }

  @discardableResult
  func put(
    _ key: String, _ value: [UInt8], timeToLive: Int64 = 0, timeToIdle: Int64 = 0,
    cost: UInt64 = 0, extended: [UInt8] = [], tag: [UInt8] = []
  ) -> TestWrite {
    var record = Record()
    record.expires = Record.end(of: timeToLive, from: moment.time)
    record.timeToIdle = timeToIdle
    record.cost = cost
    let write = write(.put, Array(key.utf8), value, record, extended: extended, tag: tag)
    run(write)
    return write
  }

  @discardableResult
  func remove(_ key: String) -> TestWrite {
    let write = write(.remove, Array(key.utf8))
    run(write)
    return write
  }

  @discardableResult
  func touch(_ key: String, timeToLive: Int64 = 0, timeToIdle: Int64 = 0) throws -> TestWrite {
    let old = try info(key) ?? Record()
    let write = write(
      .touch, Array(key.utf8), [],
      old.touched(at: moment.time, timeToLive: timeToLive, timeToIdle: timeToIdle))
    run(write)
    return write
  }

  @discardableResult
  func clear() -> TestWrite {
    let write = write(.clear, [])
    run(write)
    return write
  }

  // MARK: reads

  func get(_ key: String, isAccess: Bool = true) throws -> [UInt8]? {
    try Array(key.utf8).withUnsafeBytes { key in
      guard let block = try tier.get(key, at: moment, isAccess: isAccess) else { return nil }
      expect(block.unowned.key.elementsEqual(key))
      return Array(block.unowned.value)
    }
  }

  func info(_ key: String) throws -> Record? {
    try Array(key.utf8).withUnsafeBytes { try tier.info($0, at: moment) }
  }

  /// The keys of all entries, or of those with a tag that are still there.
  func keys(tagged tag: [UInt8]? = nil, page: Int = 3) throws -> [String] {
    let keys = try byteKeys(tagged: tag, page: page).map { String(decoding: $0, as: UTF8.self) }
    return tag == nil ? keys : try keys.filter { try info($0) != nil }
  }

  func byteKeys(tagged tag: [UInt8]? = nil, page: Int) throws -> [[UInt8]] {
    var all: [[UInt8]] = []
    while true {
      let last = all.last ?? []
      let count = try last.withUnsafeBytes { last in
        try (tag ?? []).withUnsafeBytes { bytes in
          try tier.keys(
            tagged: tag == nil ? nil : bytes, after: all.isEmpty ? nil : last, limit: page,
            at: tag == nil ? moment : nil
          ) { all.append(Array($0)) }
        }
      }
      if count == 0 { return all }
    }
  }

  /// The keys of all entries in the order of writes.
  func walk(page: Int = 2, descending: Bool = false) throws -> [String] {
    var place = WalkPlace(descending: descending, limit: page)
    var keys: [String] = []
    while !place.isAtEnd {
      try tier.walk(&place, at: moment) { key, _ in
        keys.append(String(decoding: key, as: UTF8.self))
      }
    }
    return keys
  }

  func maintain() {
    while tier.maintain(at: moment) {}
  }

  // MARK: looking in from outside

  func files(in folder: String) -> [String] {
    let all = FileManager.default.enumerator(atPath: path + "/" + folder)
    return (all?.allObjects as? [String] ?? []).filter { name in
      var isFolder: ObjCBool = false
      _ = FileManager.default.fileExists(
        atPath: path + "/" + folder + "/" + name, isDirectory: &isFolder)
      return !isFolder.boolValue
    }
  }

  var entries: [String] {
    (try? FileManager.default.contentsOfDirectory(atPath: path))?.sorted() ?? []
  }

  /// Runs SQL on the manifest by a connection of its own. Within this process, as SQLite's: it
  /// knows of the tier's connections.
  @discardableResult
  func query(_ sql: String) -> [[Int64]] {
    var connection: OpaquePointer?
    expect(
      sqlite3_open_v2(
        path + "/manifest.sqlite", &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nil)
        == SQLITE_OK)
    defer { sqlite3_close(connection) }
    // The tier's bound on the log is the tier's business.
    sqlite3_wal_autocheckpoint(connection, 0)
    var statement: OpaquePointer?
    let code = sqlite3_prepare_v2(connection, sql, -1, &statement, nil)
    expect(code == SQLITE_OK, "\(String(cString: sqlite3_errmsg(connection)))")
    defer { sqlite3_finalize(statement) }
    var rows: [[Int64]] = []
    while true {
      let code = sqlite3_step(statement)
      guard code == SQLITE_ROW else {
        expect(code == SQLITE_DONE, "\(String(cString: sqlite3_errmsg(connection)))")
        return rows
      }
      rows.append((0..<sqlite3_column_count(statement)).map { sqlite3_column_int64(statement, $0) })
    }
  }

  func text(_ sql: String, column: Int32 = 0) -> [String] {
    var connection: OpaquePointer?
    sqlite3_open_v2(path + "/manifest.sqlite", &connection, SQLITE_OPEN_READWRITE, nil)
    defer { sqlite3_close(connection) }
    var statement: OpaquePointer?
    sqlite3_prepare_v2(connection, sql, -1, &statement, nil)
    defer { sqlite3_finalize(statement) }
    var rows: [String] = []
    while sqlite3_step(statement) == SQLITE_ROW {
      if let text = sqlite3_column_text(statement, column) { rows.append(String(cString: text)) }
    }
    return rows
  }

  /// The whole structure: the sums that the commits have left are those of the rows, each file has
  /// a row and each row its file, ids are in order, the limits hold, SQLite finds nothing.
  func checkInvariants(orphans: Bool = false, sourceLocation: SourceLocation = #_sourceLocation) {
    var meta = query("SELECT generation, count, bytes, dead, next_version, newest FROM meta")[0]
    // The newest row has the sums if it is newer than the meta row.
    let newest = query(
      "SELECT \(DiskFixture.id), total_count, total_bytes FROM entries ORDER BY 1 DESC LIMIT 1"
    ).first
    if let newest, newest[0] > meta[5] { meta[1...2] = newest[1...2] }
    let live = query(
      """
      SELECT count(*), ifnull(sum(charge), 0), ifnull(max(version), 0) FROM entries
      WHERE generation = \(meta[0])
      """)[0]
    let dead = query(
      "SELECT ifnull(sum(charge), 0) FROM entries WHERE generation <> \(meta[0])")[0]
    expect(meta[1] == live[0], "count", sourceLocation: sourceLocation)
    expect(meta[2] == live[1], "bytes", sourceLocation: sourceLocation)
    expect(meta[3] == dead[0], "dead", sourceLocation: sourceLocation)
    expect(live[2] < meta[4], "versions", sourceLocation: sourceLocation)
    expect(text("PRAGMA integrity_check") == ["ok"], sourceLocation: sourceLocation)

    let tags = query(
      """
      SELECT count(*), (SELECT count(*) FROM tags), (SELECT count(*) FROM tags t JOIN entries e
          ON e.key = t.key AND substr(e.extended, -(e.codec >> 32)) = t.tag)
      FROM entries WHERE codec >= 4294967296
      """)[0]
    expect(tags[0] == tags[1] && tags[0] == tags[2], "tags", sourceLocation: sourceLocation)

    let named = Set(text("SELECT file FROM entries WHERE file IS NOT NULL"))
    let there = Set(files(in: "content").map { String($0.split(separator: "/").last!) })
    expect(named.isSubset(of: there), "a row without its file", sourceLocation: sourceLocation)
    if !orphans {
      expect(there.isSubset(of: named), "a file without a row", sourceLocation: sourceLocation)
    }
    let rows = query("SELECT \(DiskFixture.id), slot, generation FROM entries ORDER BY 1")
    let generations = rows.map { $0[2] }
    expect(generations == generations.sorted(), sourceLocation: sourceLocation)
    expect(Set(rows.map { $0[0] }).count == rows.count, sourceLocation: sourceLocation)
    expect(rows.allSatisfy { $0[0] >= $0[1] && $0[1] > 0 }, sourceLocation: sourceLocation)

    if let tier, tier.isUp {
      let stats = tier.stats
      expect(Int64(stats.count) == meta[1], sourceLocation: sourceLocation)
      let limits = tier.limits
      if limits.count != 0 { expect(stats.count <= limits.count, sourceLocation: sourceLocation) }
      if limits.cost != 0 { expect(stats.cost <= limits.cost, sourceLocation: sourceLocation) }
      expect(!tier.content.inFlight.discardAll(in: tier.place), sourceLocation: sourceLocation)
      expect(tier.queue.isEmpty, sourceLocation: sourceLocation)
    }
  }

  /// Random bytes, made once: without optimisation each one takes long.
  private static let random: [UInt8] = {
    var state: UInt64 = 1
    return (0..<65_536 + 4093).map { _ in
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return UInt8(truncatingIfNeeded: state >> 56)
    }
  }()

  /// A part of them, which the seed chooses, repeated.
  static func bytes(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    let start = Int((seed &* 0x9E37_79B9_7F4A_7C15) >> 48)
    var all: [UInt8] = []
    all.reserveCapacity(count)
    while all.count < count {
      all.append(contentsOf: random[start..<start + min(4093, count - all.count)])
    }
    return all
  }
}

let second: Int64 = 1_000_000_000

func expectFailure(_ status: Status, _ body: () throws -> Void) {
  do {
    try body()
    Issue.record("no failure")
  } catch {
    expect((error as? Failure)?.status == status, "\(error)")
  }
}

/// A write, and what it names.
@dynamicMemberLookup
final class TestWrite {
  var write: StoreWrite
  var form: ValueForm? { didSet { write.form = form } }
  private let block: Block

  init(_ kind: StoreWrite.Kind, _ block: consuming Block, _ hash: KeyedHash) {
    let entry = kind == .clear ? nil : block.unowned
    write = StoreWrite(kind, entry, entry.map { hash.entry($0.key) } ?? 0)
    self.block = block
  }

  subscript<T>(dynamicMember field: WritableKeyPath<StoreWrite, T>) -> T {
    get { write[keyPath: field] }
    set { write[keyPath: field] = newValue }
  }

  subscript<T>(dynamicMember result: KeyPath<StoreWrite.Result, T>) -> T {
    write.result[keyPath: result]
  }
}

/// As the tests call it: the keys are hashed here.
extension DiskTier {
  func get(_ key: Bytes, at moment: Moment, isAccess: Bool) throws(Failure) -> Block? {
    try get(key, hash.entry(key), at: moment, isAccess: isAccess)
  }

  func info(_ key: Bytes, at moment: Moment) throws(Failure) -> Record? {
    try info(key, hash.entry(key), at: moment)
  }

  func noteAccess(_ key: Bytes, at time: Int64) { noteAccess(key, hash.entry(key), at: time) }
}

extension Cache {
  /// The pop of a call, which no later write overtakes.
  func pop(_ key: Bytes, in scope: Tiers) throws(Failure) -> Block? {
    var isOvertaken = false
    return try pop(key, in: scope, &isOvertaken)
  }
}
