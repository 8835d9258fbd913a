import Foundation
import Testing

@testable import Hutch

@Suite struct DiskDamageTests {
  private func hex(_ text: String) -> String {
    "x'" + text.utf8.map { String(format: "%02x", $0) }.joined() + "'"
  }

  /// Each costs its entry, and nothing else.
  @Test(arguments: [
    "value = zeroblob(length(value))",
    "value = value || x'00'",
    "value = NULL",
    "value = 'text'",
    "version = version + 1",
    "version = 0",
    "checksum = checksum + 1",
    "size = -1",
    "size = size + 1",
    "size = 9223372036854775807",
    "size = -9223372036854775808",
    "extended = x'01'",
    "extended = zeroblob(100000)",
    "codec = 1 << 32",
    "codec = 255 << 32",
    "codec = -1",
    "codec = 9223372036854775807",
    "idle = -5",
    "file = ''",
    "file = '../../../../etc/passwd'",
    "file = '0123456789ABCDEF'",
    "file = '0123456789abcdef'",
    "file = x'00'",
    "charge = -1",
    "charge = 9223372036854775807",
    "charge = 'many'",
    "created = 'long ago'",
    "generation = 9223372036854775807",
  ])
  func rowsCostTheirEntryOnly(change: String) throws {
    let disk = try DiskFixture()
    for i in 0..<10 { disk.put("k\(i)", DiskFixture.bytes(100, seed: UInt64(i))) }
    disk.query("UPDATE entries SET \(change) WHERE key = \(hex("k3"))")
    let isHarmless =
      change.hasPrefix("charge") || change.hasPrefix("created")
    if !isHarmless {
      expect(try disk.info("k3") == nil || disk.get("k3") == nil)
      expect(try disk.get("k3") == nil)
      expect(disk.tier.stats.damaged == 1)
    }
    for i in 0..<10 where i != 3 {
      expect(try disk.get("k\(i)") == DiskFixture.bytes(100, seed: UInt64(i)))
    }
    disk.maintain()
    expect(disk.tier.isUp)
    if !isHarmless {
      expect(disk.query("SELECT count(*) FROM entries WHERE key = \(hex("k3"))")[0][0] == 0)
      expect(disk.dropped.all == ["k3"])
      if !change.hasPrefix("generation") { disk.checkInvariants() }
    }
    disk.put("k3", [3])
    expect(try disk.get("k3") == [3])
    for i in 0..<10 { disk.remove("k\(i)") }
    expect(disk.close() == nil)
  }

  @Test func keysThatNoCacheHasAreNotGivenOut() throws {
    let disk = try DiskFixture(
      StorageOptions(limits: TierLimits(ages: Ages(timeToLive: 10 * second))))
    for i in 0..<4 { disk.put("k\(i)", [1]) }
    disk.query("UPDATE entries SET key = x'' WHERE key = \(hex("k0"))")
    disk.query("UPDATE entries SET key = zeroblob(100000) WHERE key = \(hex("k1"))")
    disk.query("UPDATE entries SET key = 'text' WHERE key = \(hex("k2"))")
    expect(try disk.keys(page: 1) == ["k3"])
    disk.time.advance(seconds: 11)
    disk.maintain()
    expect(Set(disk.dropped.all) == ["text", "k3"])
    disk.checkInvariants()
  }

  /// A size that no memory has room for.
  @Test func aFileOfAnImpossibleSize() throws {
    let disk = try DiskFixture()
    disk.put("k", DiskFixture.bytes(50_000))
    disk.query("UPDATE entries SET size = 70000000000000")
    expect(try disk.get("k") == nil)
    expect(disk.tier.stats.damaged == 1)
    disk.maintain()
    disk.checkInvariants()
  }

  /// The bar on a damaged entry is on its version: one that was put in the meantime is seen.
  @Test func aBarIsOnAVersion() throws {
    let disk = try DiskFixture()
    let old = disk.put("k", [1])
    disk.put("k", [2])
    Array("k".utf8).withUnsafeBytes {
      disk.tier.queue.barDamaged($0, disk.tier.hash.entry($0), version: old.version)
    }
    expect(try disk.get("k") == [2])
    expect(try disk.info("k") != nil)
    expect(try disk.touch("k", timeToLive: 5 * second).existed)
    expect(try disk.get("k") == [2])
    disk.maintain()
    expect(!disk.tier.queue.hasBars)
    expect(try disk.get("k") == [2])
    disk.checkInvariants()
  }

  @Test func whatSQLiteDoesNotTakeIsNotStoredAsNull() throws {
    let disk = try DiskFixture()
    let connection = try Connection(disk.path + "/manifest.sqlite", .write)
    let statement = try connection.prepare("SELECT ?1")
    defer { statement.end() }
    var byte: UInt8 = 1
    withUnsafePointer(to: &byte) { byte in
      // SQLite looks at the length alone.
      let bytes = Bytes(start: byte, count: 1 << 31)
      #expect { try statement.bind(1, bytes) } throws: { ($0 as? Failure)?.status == .tooLarge }
      #expect { try statement.bindText(1, bytes) } throws: {
        ($0 as? Failure)?.status == .tooLarge
      }
    }
  }

  @Test func aValueUnderAnothersKeyIsDamage() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.put("b", [2])
    disk.query("DELETE FROM entries WHERE key = \(hex("a"))")
    disk.query("UPDATE entries SET key = \(hex("a")) WHERE key = \(hex("b"))")
    expect(try disk.get("a") == nil)
    expect(disk.tier.stats.damaged == 1)
  }

  @Test(arguments: ["gone", "short", "long", "changed", "folder"])
  func filesCostTheirEntryOnly(damage: String) throws {
    let disk = try DiskFixture()
    for i in 0..<4 { disk.put("k\(i)", DiskFixture.bytes(50_000, seed: UInt64(i))) }
    let name = disk.text("SELECT file FROM entries WHERE key = \(hex("k2"))")[0]
    let path = disk.path + "/content/" + name.dropFirst(6).prefix(2) + "/" + name
    var bytes = DiskFixture.bytes(50_000, seed: 2)
    switch damage {
    case "gone": try FileManager.default.removeItem(atPath: path)
    case "short": try Data(bytes.dropLast()).write(to: URL(fileURLWithPath: path))
    case "long": try Data(bytes + [1]).write(to: URL(fileURLWithPath: path))
    case "changed":
      bytes[40_000] ^= 1
      try Data(bytes).write(to: URL(fileURLWithPath: path))
    default:
      try FileManager.default.removeItem(atPath: path)
      try FileManager.default.createDirectory(
        atPath: path, withIntermediateDirectories: false)
    }
    expect(try disk.get("k2") == nil)
    expect(try disk.info("k2") == nil)
    expect(disk.tier.stats.damaged == 1)
    for i in [0, 1, 3] {
      expect(try disk.get("k\(i)") == DiskFixture.bytes(50_000, seed: UInt64(i)))
    }
    disk.put("k2", [2])
    expect(try disk.get("k2") == [2])
    disk.maintain()
    disk.checkInvariants()
  }

  @Test func anEntryOfAnUnknownCodecIsAMissAndKept() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.query("UPDATE entries SET codec = 9")
    expect(try disk.get("a") == nil)
    disk.maintain()
    expect(disk.tier.stats.damaged == 0)
    expect(disk.query("SELECT count(*) FROM entries")[0][0] == 1)
  }

  // MARK: the manifest

  private func damagedNames(_ disk: DiskFixture) -> [String] {
    disk.entries.filter { $0.hasPrefix("hutch-") && $0.hasSuffix(".damaged") }
  }

  @Test(arguments: ["", "no database, this", String(repeating: "x", count: 100_000)])
  func aFileThatIsNoDatabaseIsSetAside(content: String) throws {
    let disk = try DiskFixture()
    expect(disk.close() == nil)
    try Data(content.utf8).write(to: URL(fileURLWithPath: disk.path + "/manifest.sqlite"))
    try disk.open()
    disk.put("a", [1])
    expect(try disk.get("a") == [1])
    let names = damagedNames(disk)
    expect(names.count == 1)
    let aside = try Data(contentsOf: URL(fileURLWithPath: disk.path + "/" + names[0]))
    expect(aside.count == content.utf8.count)
    disk.checkInvariants()
  }

  @Test(arguments: [
    "DROP TABLE entries", "DROP TABLE meta", "DELETE FROM meta",
    "UPDATE meta SET count = -1", "UPDATE meta SET bytes = 9223372036854775807",
    "UPDATE meta SET next_version = -1", "UPDATE meta SET storage = 77",
    "UPDATE meta SET generation = 0",
    """
    INSERT INTO entries SELECT 9223372036854775807, NULL, x'01', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
      1, 1, 1, 1, NULL, NULL, NULL
    """,
  ])
  func aManifestThatCannotBeIsSetAside(change: String) throws {
    let disk = try DiskFixture()
    disk.put("a", DiskFixture.bytes(50_000))
    expect(disk.close() == nil)
    disk.query(change)
    try disk.open()
    expect(damagedNames(disk).count == 1)
    expect(try disk.get("a") == nil)
    disk.put("b", [1])
    // The content file of the entry that was lost has no row now.
    disk.maintain()
    disk.checkInvariants()
    expect(disk.close() == nil)
    disk.query(change)
    try disk.open()
    expect(damagedNames(disk).count == 1, "one is kept")
  }

  @Test func aManifestThatLacksAColumnIsClosed() throws {
    func open() -> Int {
      let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
      return names.filter {
        let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)
        return target?.contains(".damaged") ?? false
      }.count
    }
    let disk = try DiskFixture()
    expect(disk.close() == nil)
    disk.query("ALTER TABLE entries DROP COLUMN uses")
    try disk.open()
    expect(damagedNames(disk).count == 1 && open() == 0)
    disk.put("k", [1])
    expect(try disk.get("k") == [1])
  }

  @Test func whatWasSetAsideGoesAfterAWeek() throws {
    let disk = try DiskFixture()
    expect(disk.close() == nil)
    try Data("x".utf8).write(to: URL(fileURLWithPath: disk.path + "/manifest.sqlite"))
    try disk.open()
    disk.maintain()
    expect(damagedNames(disk).count == 1)
    let directory = try Directory.open(path: disk.path)
    ManifestFile.removeOldDamaged(
      in: directory, at: Clock.read(CLOCK_REALTIME) + 6 * 86_400 * second)
    expect(damagedNames(disk).count == 1)
    ManifestFile.removeOldDamaged(
      in: directory, at: Clock.read(CLOCK_REALTIME) + 8 * 86_400 * second)
    expect(damagedNames(disk).isEmpty)
  }

  @Test func anotherProgramsDatabaseIsLeftAlone() throws {
    let disk = try DiskFixture(opening: false)
    try FileManager.default.createDirectory(
      atPath: disk.path, withIntermediateDirectories: true)
    disk.query("CREATE TABLE mine (a)")
    let before = try Data(contentsOf: URL(fileURLWithPath: disk.path + "/manifest.sqlite"))
    expectFailure(.badDirectory) { try disk.open() }
    expect(disk.entries == ["manifest.sqlite"])
    expect(
      try Data(contentsOf: URL(fileURLWithPath: disk.path + "/manifest.sqlite")) == before)
  }

  @Test func aNewerFormatIsNotTouched() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    expect(disk.close() == nil)
    disk.query("PRAGMA user_version = \(ManifestFile.format + 1)")
    try FileManager.default.removeItem(atPath: disk.path + "/hutch.lock")
    func state() throws -> [String: Data] {
      var all: [String: Data] = [:]
      for name in disk.entries {
        all[name] = try? Data(contentsOf: URL(fileURLWithPath: disk.path + "/" + name))
      }
      return all
    }
    let before = try state()
    let names = disk.entries
    expectFailure(.newerFormat) { try disk.open() }
    expect(try state() == before)
    expect(disk.entries == names)
  }

  @Test func aNewerFormatInTheLogAlone() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    let killed = try disk.copyOfKilled()
    killed.query("BEGIN")
    killed.query("PRAGMA user_version = \(ManifestFile.format + 1)")
    let other = try killed.copyOfKilled()
    expectFailure(.newerFormat) { try other.open() }
  }

  @Test func afterALossOfPowerSQLiteIsAsked() throws {
    let disk = try DiskFixture()
    for i in 0..<2000 { disk.put("k\(i)", DiskFixture.bytes(200)) }
    expect(disk.close() == nil)
    let manifest = disk.path + "/manifest.sqlite"

    // Of another boot and not closed, but whole: it goes on.
    disk.query("UPDATE meta SET clean = 0, boot_id = x'00112233445566778899aabbccddeeff'")
    try disk.open()
    expect(disk.tier.stats.count == 2000)
    expect(disk.close() == nil)

    // Pages of different ages. Of a durability that syncs there are none, and nothing is asked.
    var bytes = try Data(contentsOf: URL(fileURLWithPath: manifest))
    for page in stride(from: 20, to: bytes.count / 4096, by: 7) {
      bytes.replaceSubrange(page * 4096..<page * 4096 + 64, with: Data(count: 64))
    }
    let whole = try Data(contentsOf: URL(fileURLWithPath: manifest))
    try bytes.write(to: URL(fileURLWithPath: manifest))
    disk.query(
      """
      UPDATE meta SET clean = 0, durability = 2, boot_id = x'00112233445566778899aabbccddeeff'
      """)
    disk.options.durability = .power
    try disk.open()
    expect(disk.tier.stats.count == 2000)
    expect(damagedNames(disk).isEmpty)
    disk.close()
    try? FileManager.default.removeItem(atPath: manifest + "-wal")

    // Of an opening that was killed the weaker durability counts, though a stronger one followed.
    try whole.write(to: URL(fileURLWithPath: manifest))
    disk.query("UPDATE meta SET clean = 0, durability = 1")
    try disk.open()
    expect(disk.query("SELECT durability FROM meta")[0][0] == 1)
    disk.close()
    expect(disk.query("SELECT durability FROM meta")[0][0] == 1)
    try disk.open()
    expect(disk.query("SELECT durability FROM meta")[0][0] == 2)
    disk.close()
    disk.options.durability = .process

    try bytes.write(to: URL(fileURLWithPath: manifest))
    disk.query(
      """
      UPDATE meta SET clean = 0, durability = 1, boot_id = x'00112233445566778899aabbccddeeff'
      """)
    try disk.open()
    expect(disk.tier.stats.count == 0)
    expect(damagedNames(disk).count == 1)
    disk.put("a", [1])
    disk.checkInvariants()
  }

  @Test func aMalformedPageAtRunTime() throws {
    let disk = try DiskFixture()
    for i in 0..<3000 { disk.put("k\(i)", DiskFixture.bytes(200)) }
    expect(disk.close() == nil)
    let manifest = disk.path + "/manifest.sqlite"
    var bytes = try Data(contentsOf: URL(fileURLWithPath: manifest))
    for page in stride(from: 8, to: bytes.count / 4096, by: 1) {
      bytes.replaceSubrange(
        page * 4096..<page * 4096 + 4096, with: Data(repeating: 0xFF, count: 4096))
    }
    try bytes.write(to: URL(fileURLWithPath: manifest))
    try disk.open()
    for i in 0..<3000 {
      let value = try disk.get("k\(i)")
      expect(value == nil || value == DiskFixture.bytes(200))
      disk.put("k\(i)", DiskFixture.bytes(200))
      if i % 100 == 0 { disk.maintain() }
    }
    disk.maintain()
    expect(disk.tier.isUp)
    expect(damagedNames(disk).count == 1)
    disk.put("z", [1])
    expect(try disk.get("z") == [1])
    disk.maintain()
    disk.checkInvariants()
  }
}
