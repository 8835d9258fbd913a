import CSystem
import Foundation
import Testing

@testable import Hutch

/// Files that the library has not made: none is opened, moved or unlinked. And what stands where a
/// file of the library's should be.
@Suite struct DiskForeignTests {
  private func fill(_ path: String, _ names: [String]) throws {
    for name in names {
      let url = URL(fileURLWithPath: path + "/" + name)
      try FileManager.default.createDirectory(
        at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data("mine: \(name)".utf8).write(to: url)
    }
  }

  private func check(_ path: String, _ names: [String]) {
    for name in names {
      expect(
        (try? String(contentsOfFile: path + "/" + name, encoding: .utf8)) == "mine: \(name)",
        "\(name)")
    }
  }

  private static let others = [
    "notes.txt", "lock", "shared", "manifest.new", "manifest.new-wal", "damaged-photos.txt",
    "damaged-0123456789abcdef", "trash/thesis.docx", "trash/0123456789abcdef",
    "content/ab/ab23456789abcdef", "content/ab/ab23456789abcdef.tmp", "content/notes",
    "hutch-photo.damaged", "trash/hutch-photo",
  ]

  @Test(arguments: [Sharing.exclusive, .shared])
  func filesOfOthersStay(sharing: Sharing) throws {
    let disk = try DiskFixture(opening: false)
    disk.options.sharing = sharing
    try fill(disk.path, Self.others)
    expectFailure(.badDirectory) { try disk.open() }
    expect(!disk.entries.contains { $0 != "content" && $0 != "trash" && !Self.others.contains($0) })
    disk.options.allowsNonempty = true
    try disk.open()
    disk.put("k", DiskFixture.bytes(50_000))
    disk.put("k", DiskFixture.bytes(60_000))
    disk.maintain()
    let killed = try disk.copyOfKilled()
    expect(disk.close() == nil)
    check(disk.path, Self.others)

    // It is a cache's from now on, whatever becomes of its manifest.
    killed.options = disk.options
    killed.options.allowsNonempty = false
    try killed.open()
    killed.maintain()
    _ = try killed.tier.check(isQuick: false, at: killed.moment)
    expect(try killed.get("k") == DiskFixture.bytes(60_000))
    expect(killed.close() == nil)
    try Data("no database".utf8).write(to: URL(fileURLWithPath: killed.path + "/manifest.sqlite"))
    try killed.open()
    killed.maintain()
    expect(try killed.get("k") == nil)
    expect(killed.files(in: "content").allSatisfy { !$0.contains("hutch-") })
    expect(killed.close() == nil)
    check(killed.path, Self.others)
  }

  @Test func aFileOfAnotherUnderTheManifestsNameIsNotMoved() throws {
    let disk = try DiskFixture(opening: false)
    disk.options.allowsNonempty = true
    try fill(disk.path, ["manifest.sqlite"])
    expectFailure(.badDirectory) { try disk.open() }
    expect(disk.entries == ["manifest.sqlite"])
    check(disk.path, ["manifest.sqlite"])
  }

  @Test func anEmptyFileSystemIsEmpty() throws {
    let disk = try DiskFixture(opening: false)
    try FileManager.default.createDirectory(
      atPath: disk.path + "/lost+found", withIntermediateDirectories: true)
    try disk.open()
    disk.put("k", [1])
    try disk.reopen()
    expect(try disk.get("k") == [1])
  }

  @Test(arguments: ["content", "trash"])
  func aFolderThatIsALink(name: String) throws {
    let other = try DiskFixture()
    other.put("k", DiskFixture.bytes(50_000))
    let disk = try DiskFixture()
    disk.put("k", DiskFixture.bytes(50_000))
    expect(disk.close() == nil)
    disk.query("UPDATE meta SET clean = 0")
    try FileManager.default.removeItem(atPath: disk.path + "/" + name)
    try FileManager.default.createSymbolicLink(
      atPath: disk.path + "/" + name, withDestinationPath: other.path + "/" + name)
    expectFailure(.badDirectory) { try disk.open() }
    expect(try other.get("k") == DiskFixture.bytes(50_000))
    other.checkInvariants()
  }

  /// The folders of content files likewise, and so in the midst of things.
  @Test func aFolderOfContentFilesThatIsALink() throws {
    let other = try DiskFixture()
    other.put("k", DiskFixture.bytes(50_000))
    let file = other.files(in: "content")[0]
    let folder = "/content/" + file.split(separator: "/")[0]
    let disk = try DiskFixture()
    try? FileManager.default.removeItem(atPath: disk.path + folder)
    try FileManager.default.createSymbolicLink(
      atPath: disk.path + folder, withDestinationPath: other.path + folder)
    // A row that names the other's file, as its own.
    let name = file.split(separator: "/").last!
    disk.put("theirs", DiskFixture.bytes(50_000))
    disk.query("UPDATE entries SET file = '\(name)'")
    expect(try disk.get("theirs") == nil)
    expect(disk.tier.stats.damaged == 1)
    disk.maintain()
    expect(try other.get("k") == DiskFixture.bytes(50_000))
    _ = try disk.tier.check(isQuick: false, at: disk.moment)
    expect(try other.get("k") == DiskFixture.bytes(50_000))
    // What would be written there fails, and nothing comes of it.
    for i in 0..<256 {
      try? FileManager.default.removeItem(
        atPath: disk.path + "/content/" + String(format: "%02x", i))
      try FileManager.default.createSymbolicLink(
        atPath: disk.path + "/content/" + String(format: "%02x", i),
        withDestinationPath: other.path + folder)
    }
    expect(disk.put("new", DiskFixture.bytes(50_000)).outcome == .failed)
    expect(other.files(in: "content") == [file])
    other.checkInvariants()
  }

  @Test func aFIFOInPlaceOfAContentFile() throws {
    let disk = try DiskFixture()
    disk.put("k", DiskFixture.bytes(50_000))
    let path = disk.path + "/content/" + disk.files(in: "content")[0]
    try FileManager.default.removeItem(atPath: path)
    expect(mkfifo(path, 0o600) == 0)
    let number = try Array("k".utf8).withUnsafeBytes {
      try disk.tier.open($0, disk.tier.hash.entry($0), at: disk.moment)
    }
    expect(number == nil)
    expect(try disk.get("k") == nil)
    expect(disk.tier.stats.damaged > 0)
    disk.maintain()
    disk.checkInvariants()
  }

  @Test func aFIFOInPlaceOfTheSharedFile() throws {
    let disk = try DiskFixture(opening: false)
    disk.options.sharing = .shared
    try FileManager.default.createDirectory(
      atPath: disk.path, withIntermediateDirectories: true)
    expect(mkfifo(disk.path + "/hutch.shared", 0o600) == 0)
    let failure = #expect(throws: Failure.self) { try disk.open() }
    expect(failure?.status == .badDirectory)
    expect(FileManager.default.fileExists(atPath: disk.path + "/hutch.shared"))
  }

  /// Folders under the names of files: nothing can unlink them.
  @Test func trashThatCannotBeEmptiedIsLeft() throws {
    let disk = try DiskFixture()
    for i in 0..<100 {
      try FileManager.default.createDirectory(
        atPath: disk.path + "/trash/" + String(format: "hutch-%016x", i),
        withIntermediateDirectories: false)
    }
    try disk.reopen()
    var rounds = 0
    while rounds < 100 && disk.tier.maintain(at: disk.moment) { rounds += 1 }
    expect(rounds < 100)
    for i in 0..<100 {
      let name = String(format: "hutch-1%015x", i)
      try Data([1]).write(to: URL(fileURLWithPath: disk.path + "/trash/" + name))
    }
    try disk.reopen()
    disk.maintain()
    expect(disk.files(in: "trash").isEmpty)
  }

  /// It keeps the time of its last writing, which may be long ago.
  @Test func aLinkedFileOnItsWayIsNotSwept() throws {
    let a = try DiskFixture(opening: false)
    a.options.sharing = .shared
    try a.open(hostsClock: false)
    let b = try DiskFixture(a.options, opening: false, at: a.path)
    try b.open(hostsClock: false)
    let source = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    defer { try? FileManager.default.removeItem(atPath: source) }
    let value = DiskFixture.bytes(50_000)
    try Data(value).write(to: URL(fileURLWithPath: source))
    try FileManager.default.setAttributes(
      [.modificationDate: Date(timeIntervalSince1970: 1_000_000_000)], ofItemAtPath: source)

    let descriptor = open(source, O_RDONLY)
    defer { close(descriptor) }
    let sum = value.withUnsafeBytes { Checksum.xxh3($0) }
    let write = a.write(.put, Array("k".utf8), [])
    let form = ValueForm()
    form.file = try PendingFile.link(
      source, descriptor, size: 50_000, checksum: sum, FileSuffix(), in: a.tier)
    form.isInBlock = false
    expect(form.file != nil)
    write.form = form
    a.prepare(write)
    let report = try b.tier.check(isQuick: true, at: b.moment)
    expect(report.orphans == 0)
    a.submit(write)
    a.complete(write)
    expect(write.outcome == .stored)
    expect(try b.get("k") == value)
    expect(try a.get("k") == value)
    expect(b.close() == nil)
  }

  /// A rename, and another cache at the path: SQLite goes by the path.
  @Test func anotherCacheAtThePathIsNotRead() throws {
    let disk = try DiskFixture()
    disk.put("k", [1])
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    defer { try? FileManager.default.removeItem(atPath: disk.path + "-away") }
    let other = try DiskFixture(at: disk.path)
    other.put("k", [2])
    // The first read: the connection is opened for it.
    expect((try? disk.get("k")) != [2])
    expect(!disk.tier.isUp)
    expect(other.close() == nil)
  }

  /// The connections that read are opened again after a fork, before the one that writes is.
  @Test func readersOfADirectoryThatHasGoneSinceAFork() throws {
    let disk = try DiskFixture()
    disk.put("k", [1])
    expect(disk.tier.prepareFork(until: Deadline(after: 10 * second)))
    disk.tier.endFork()
    expect(try disk.get("k") == [1])
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    defer { try? FileManager.default.removeItem(atPath: disk.path + "-away") }
    expect(disk.put("l", [1]).outcome == .failed)
    expect(!disk.tier.isUp)
    try FileManager.default.createDirectory(
      atPath: disk.path, withIntermediateDirectories: false)
    disk.maintain()
    expect(disk.tier.isUp)
    expect(try disk.get("k") == nil)
    expect(disk.put("k", [2]).outcome == .stored)
    expect(try disk.get("k") == [2])
  }

  @Test func pathsAreFollowedStepByStepWhereTheKernelCannot() throws {
    let disk = try DiskFixture()
    disk.put("k", DiskFixture.bytes(50_000))
    let file = "content/" + disk.files(in: "content")[0]
    let folder = "content/" + disk.files(in: "content")[0].split(separator: "/")[0]
    let directory = try Directory.open(path: disk.path)
    func open(_ path: String, _ flags: Int32) -> Int32? {
      let number = Files.openStepwise(path, at: directory.descriptor, flags | O_CLOEXEC)
      if let number { close(number) }
      return number
    }
    expect(open(file, O_RDONLY) != nil)
    expect(open(folder, O_PATH | O_DIRECTORY) != nil)
    expect(open("hutch.lock", O_RDONLY) != nil)
    expect(open(folder + "/none", O_RDONLY) == nil && errno == ENOENT)
    expect(open(folder + "/new", O_RDWR | O_CREAT | O_EXCL) != nil)
    expect(open(String(repeating: "x", count: 100) + "/y", O_RDONLY) == nil)
    try FileManager.default.moveItem(atPath: disk.path + "/content", toPath: disk.path + "/moved")
    try FileManager.default.createSymbolicLink(
      atPath: disk.path + "/content", withDestinationPath: disk.path + "/moved")
    expect(FileManager.default.fileExists(atPath: disk.path + "/" + file))
    expect(open(file, O_RDONLY) == nil && (errno == ENOTDIR || errno == ELOOP))
    expect(Files.openBeneath(file, at: directory.descriptor, O_RDONLY) == nil && errno == ELOOP)
  }
}
