internal import CHutch
import Synchronization

/// The check of everything: SQLite's own, then each row with its value, then the files without
/// a row, then the sums in the meta row. In slices, while other threads read and write, so the
/// report holds for each slice at its moment.
///
/// SQLite's check and the sums are one read transaction each. The log cannot begin anew
/// meanwhile, which is why a quick check does without the former.
extension DiskTier {
  private static let keysInCheck = 128

  func check(isQuick: Bool, at moment: Moment) throws(Failure) -> CheckReport {
    // Found damaged a moment ago, for example: no pause, as for writes.
    guard isUp || reopen() else { throw downFailure }
    var report = CheckReport()
    do throws(Failure) {
      if !isQuick { try checkManifest(&report) }
      let unread = try checkEntries(&report, isQuick: isQuick, at: moment)
      checkFiles(&report)
      try checkCharges(&report)
      try checkSums(&report)
      if let unread { throw unread }
    } catch {
      note(error)
      service.tell(observer)
      throw isUp ? error : downFailure
    }
    service.tell(observer)
    return report
  }

  // MARK: the manifest

  private func integrityErrors() throws(Failure) -> Int {
    do throws(Failure) {
      var errors = 0
      try withReader { (reader) throws(Failure) in errors = try reader.integrityErrors() }
      return errors
    } catch {
      guard error.status == .corrupt else { throw error }
      return 1
    }
  }

  /// An index is made anew from the rows; if that does not help, the whole file is, which puts
  /// right the rest of the file, such as the numbers in its head. If rows cannot be read,
  /// the manifest is set aside, and the tier starts empty.
  private func checkManifest(_ report: inout CheckReport) throws(Failure) {
    let errors = try integrityErrors()
    guard errors > 0 else { return }
    report.manifest = UInt64(errors)
    counters.damaged.add()
    // A transaction like any other: reads from here on see it, in every process.
    let isRepaired = try helps { () throws(Failure) in
      try change { (transaction: inout Transaction) throws(Failure) in
        transaction.hasChanged = true
        try transaction.manifest.reindex()
        // One key may have had two rows.
        committer.evictor.forgetCandidates()
      }
    }
    if isRepaired { return }
    if try helps({ () throws(Failure) in
      try committer.withTurn { () throws(Failure) in try rewrite() }
    }) {
      return
    }
    committer.withTurn { attachment.isCondemned = true }
    service.goDown(Failure(.corrupt, "the manifest is damaged"))
    service.tell(observer)
    guard reopen() else { throw downFailure }
  }

  /// Whether a repair has put the manifest right. Fails if it could not be made for another reason
  /// than damage: a later check repairs the manifest then.
  private func helps(_ repair: () throws(Failure) -> Void) throws(Failure) -> Bool {
    if isUp {
      do throws(Failure) {
        try repair()
        if try integrityErrors() == 0 { return true }
      } catch {
        guard error.isOfDamage else { throw error }
      }
    }
    // The repair may have found rows that cannot be read. Any other reason is no damage.
    guard isUp || service.foundDamage else { throw downFailure }
    return false
  }

  /// The writer lock is held.
  private func rewrite() throws(Failure) {
    try committer.catchUp()
    guard isUp, let manifest = committer.manifest else { throw downFailure }
    // Others are to ask the manifest if this does not come to its end.
    shared.willCommit()
    defer { readers.noteCommit() }
    do throws(Failure) {
      try manifest.rewrite()
    } catch {
      shared.forgetTransaction()
      throw error
    }
    committer.evictor.forgetCandidates()
    shared.ended()
    members.noteLearnt()
    committer.holdLimit(manifest)
    committer.publish(manifest)
  }

  /// One transaction, with the writer lock taken for it.
  private func change(
    _ body: (inout Transaction) throws(Failure) -> Void
  ) throws(Failure) {
    try committer.withTurn { () throws(Failure) in
      try committer.checkService()
      try committer.transact(body)
    }
  }

  // MARK: entries

  /// Returns a failure to read the file of a value: nothing is known of that value then, and the
  /// check goes on behind it.
  private func checkEntries(
    _ report: inout CheckReport, isQuick: Bool, at moment: Moment
  ) throws(Failure) -> Failure? {
    var unread: Failure?
    var place = WalkPlace()
    while !place.isAtEnd {
      var impossible = GrowingArray<Int64>()
      var failure: Failure?
      try walk(&place, at: nil) { key, entry in
        guard failure == nil else { return }
        do throws(Failure) {
          if key.count == 0 || key.count > Row.longestKey {
            // No read finds it by its key.
            try impossible.append(entry.id)
          } else {
            try check(key, &report, isQuick: isQuick, at: moment)
          }
        } catch {
          if isUp && error.sqlite == 0 { unread = error } else { failure = error }
        }
      }
      if let failure { throw failure }
      if !impossible.isEmpty { try removeImpossible(impossible, &report, at: moment) }
      if owesWork { doOwedWork() }
    }
    return unread
  }

  private func check(
    _ key: Bytes, _ report: inout CheckReport, isQuick: Bool, at moment: Moment
  ) throws(Failure) {
    var isDamaged = false
    if isQuick {
      if try isWhole(key, at: moment, isDamaged: &isDamaged) { report.entries += 1 }
    } else if let block = try find(key, hash.entry(key), at: moment, isDamaged: &isDamaged) {
      report.entries += 1
      report.bytes += UInt64(block.unowned.size)
    }
    if isDamaged { report.damaged += 1 }
  }

  /// True if there is an entry, and its row and file agree as far as can be seen without reading.
  private func isWhole(
    _ key: Bytes, at moment: Moment, isDamaged: inout Bool
  ) throws(Failure) -> Bool {
    let hash = hash.entry(key)
    var last: UInt64 = 0
    for _ in 0..<DiskTier.mostRounds {
      guard let found = try locate(key, hash, at: moment, isDamaged: &isDamaged) else {
        return false
      }
      if try found.isComplete() { return true }
      // As in `find`: only if the same entry is there still, it is damaged.
      if found.record.version == last {
        noteDamage(key, hash, last)
        isDamaged = true
        return false
      }
      last = found.record.version
    }
    return false
  }

  private func removeImpossible(
    _ ids: borrowing GrowingArray<Int64>, _ report: inout CheckReport, at moment: Moment
  ) throws(Failure) {
    let done = try slice(at: moment) { (transaction: inout Transaction) throws(Failure) in
      for i in 0..<ids.count {
        _ = try transaction.drop(id: ids[i]) { _, _ in .damaged }
      }
    }
    counters.damaged.add(done)
    report.damaged += done
  }

  // MARK: files and sums

  /// A whole sweep, from its beginning.
  private func checkFiles(_ report: inout CheckReport) {
    while sweepOrphans() {}
    committer.withTurn { content.beginSweep() }
    while sweepOrphans() {}
    report.orphans = committer.withTurn { content.orphans.removed }
  }

  /// A row's value does not change while it has this version, so a wrong charge is still wrong when
  /// it is corrected. A row that was touched meanwhile may have another slot, and the next check
  /// finds it. The sums are next.
  private func checkCharges(_ report: inout CheckReport) throws(Failure) {
    var last: Int64 = 0
    var isEnd = false
    while !isEnd {
      isEnd = true
      var wrong = GrowingArray<WrongCharge>()
      try withReader { (reader) throws(Failure) in
        if let slot = try reader.wrongCharges(
          after: last, limit: DiskTier.keysInCheck, to: &wrong)
        {
          isEnd = false
          last = slot
        }
      }
      guard !wrong.isEmpty else { continue }
      report.counters = 1
      try change { (transaction: inout Transaction) throws(Failure) in
        transaction.hasChanged = true
        for i in 0..<wrong.count { try transaction.manifest.setCharge(wrong[i]) }
      }
    }
  }

  /// Every transaction adds and subtracts, so a wrong sum stays wrong by the same amount. Reads and
  /// writes go on while the rows are summed up.
  private func checkSums(_ report: inout CheckReport) throws(Failure) {
    for _ in 0..<4 {
      var counts: ManifestCounts?
      try withReader { (reader) throws(Failure) in counts = try reader.counts() }
      guard let sums = counts else { throw downFailure }
      guard !sums.isRight else { return }
      var isDone = false
      try change { (transaction: inout Transaction) throws(Failure) in
        // A clear has moved the sums meanwhile.
        guard transaction.meta.generation == sums.generation else { return }
        try transaction.meta.correct(by: sums)
        transaction.hasChanged = true
        isDone = true
      }
      report.counters = 1
      if isDone { return }
    }
  }
}

extension Meta {
  fileprivate mutating func correct(by sums: ManifestCounts) throws(Failure) {
    count = max(0, count &+ (sums.count.found &- sums.count.said))
    bytes = max(0, bytes &+ (sums.bytes.found &- sums.bytes.said))
    dead = max(0, dead &+ (sums.dead.found &- sums.dead.said))
    guard isSound else { throw Failure(.corrupt, "the manifest's rows are damaged") }
  }
}
