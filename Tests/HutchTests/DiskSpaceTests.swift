import Foundation
import Testing

@testable import Hutch

/// A file system of a few megabytes in memory, where the machine allows one to be mounted.
private final class SmallFileSystem {
  let path: String

  init?(megabytes: Int) {
    path = NSTemporaryDirectory() + "hutch-small-\(UInt64.random(in: 0...UInt64.max))"
    guard
      (try? FileManager.default.createDirectory(
        atPath: path, withIntermediateDirectories: false)) != nil
    else { return nil }
    guard
      SmallFileSystem.run("mount", ["-t", "tmpfs", "-o", "size=\(megabytes)m", "tmpfs", path])
    else {
      rmdir(path)
      return nil
    }
  }

  deinit {
    _ = SmallFileSystem.run("umount", ["-l", path])
    rmdir(path)
  }

  private static func run(_ tool: String, _ arguments: [String]) -> Bool {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [tool] + arguments
    process.standardError = nil
    guard (try? process.run()) != nil else { return false }
    process.waitUntilExit()
    return process.terminationStatus == 0
  }

  static let isThere = SmallFileSystem(megabytes: 1) != nil
}

@Suite(.enabled(if: SmallFileSystem.isThere)) struct DiskSpaceTests {
  @Test(arguments: [StorageKind.mixed, .sqlite, .file])
  func aFullFileSystemMakesRoomAtTheExpenseOfOldEntries(storage: StorageKind) throws {
    let small = try #require(SmallFileSystem(megabytes: 8))
    var options = DiskFixture.unlimited
    options.kind = storage
    let disk = try DiskFixture(options, at: small.path + "/cache")
    var stored = 0
    for i in 0..<400 {
      let size = i % 2 == 0 ? 60_000 : 3000
      let write = disk.put("k\(i)", DiskFixture.bytes(size, seed: UInt64(i)))
      if write.outcome == .stored {
        stored += 1
        expect(try disk.get("k\(i)") == DiskFixture.bytes(size, seed: UInt64(i)))
      } else {
        expect(write.outcome == .noSpace && write.failure?.status == .noSpace)
        expect(try disk.get("k\(i)") == nil)
      }
      disk.time.advance(seconds: 1)
      if i % 50 == 0 { disk.maintain() }
    }
    expect(stored > 380)
    expect(disk.tier.isUp)
    expect(disk.tier.stats.evictions > 50)
    disk.checkInvariants()
    try disk.reopen()
    expect(disk.tier.stats.count > 10)
    disk.checkInvariants()
  }

  @Test func aValueLargerThanTheFileSystem() throws {
    let small = try #require(SmallFileSystem(megabytes: 4))
    let disk = try DiskFixture(at: small.path + "/cache")
    disk.put("k", [1])
    let write = disk.put("k", DiskFixture.bytes(6_000_000))
    expect(write.outcome == .noSpace && write.failure?.status == .noSpace)
    expect(try disk.get("k") == nil)
    expect(disk.files(in: "content").isEmpty)
    expect(disk.put("k", [2]).outcome == .stored)
    expect(try disk.get("k") == [2])
    disk.checkInvariants()
  }

  @Test func somebodyElseFillsTheFileSystem() throws {
    let small = try #require(SmallFileSystem(megabytes: 4))
    let disk = try DiskFixture(at: small.path + "/cache")
    for i in 0..<20 { disk.put("k\(i)", DiskFixture.bytes(100, seed: UInt64(i))) }
    let filler = small.path + "/filler"
    _ = FileManager.default.createFile(atPath: filler, contents: nil)
    let handle = try #require(FileHandle(forWritingAtPath: filler))
    while (try? handle.write(contentsOf: Data(count: 4096))) != nil {}
    var failed = 0
    for i in 0..<60 {
      let write = disk.put("k\(i % 20)", DiskFixture.bytes(600_000, seed: UInt64(i)))
      let value = try disk.get("k\(i % 20)")
      if write.outcome == .stored {
        expect(value == DiskFixture.bytes(600_000, seed: UInt64(i)))
      } else {
        failed += 1
        expect(value == nil)
      }
    }
    expect(failed > 0)
    try handle.close()
    try FileManager.default.removeItem(atPath: filler)
    disk.maintain()
    expect(disk.put("k1", [1]).outcome == .stored)
    expect(try disk.get("k1") == [1])
    disk.maintain()
    expect(!disk.tier.queue.hasBars)
    disk.checkInvariants()
  }
}
