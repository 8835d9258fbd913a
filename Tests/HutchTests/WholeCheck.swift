// For these tests and for the programs of Tests/Log, which have the engine's sources in their module.
#if HUTCH_CRASH_POINTS
  internal import CHutch
#else
  @testable import Hutch
#endif

extension LogStore {
  /// The check of the index, and of the values. One that is damaged stays.
  func verify() throws(Failure) -> CheckReport {
    var report = try verifyIndex()
    var place = LogPlace()
    var found = WalkPage()
    while try step(&place, into: &found) {
      for entry in found.entries.elements {
        let key = found.key(of: entry)
        guard let entry = find(key, hash.entry(key))?.entry else { continue }
        let checksum = entry.hasFile ? entry.checksum : Checksum.xxh3(entry.value)
        if !isSound(entry, hash.entry(key), value: checksum, entry.extended) { report.damaged += 1 }
      }
    }
    return report
  }
}
