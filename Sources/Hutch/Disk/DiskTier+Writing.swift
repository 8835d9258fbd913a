import CSystem
import Synchronization

/// Writes: prepare, write, finish. The leader's transaction is in Committer+Transactions.swift, one
/// write within it in Committer+Writes.swift.
extension DiskTier {
  func prepare(_ entry: UnownedBlock, _ given: inout ValueForm?) {
    if !isUp { reopenIfDue() }
    if given?.failure != nil { counters.failures.add() }
    if !makeFile(of: entry, &given, in: self) { counters.failures.add() }
  }

  /// Whether the store takes an entry with this charge and a value that is stored so.
  func takes(charge: Int64, stored: Int, inFile: Bool) -> Bool {
    UInt64(charge) <= limits.largestCharge && (inFile || stored <= DiskTier.largestInline)
  }

  /// SQLite takes rows of up to 1,000,000,000 bytes (SQLITE_MAX_LENGTH, as it comes).
  static let largestInline = 900_000_000

  func keepsInFile(_ size: Int) -> Bool {
    switch StorageKind(rawValue: counters.storage.load(ordering: .relaxed)) {
    case .sqlite: false
    case .file: true
    default: size > min(options.inlineThreshold, DiskTier.largestInline)
    }
  }

  func write(_ write: inout StoreWrite) {
    guard isNeeded(write) else { return }
    if members.belongToParent {
      write.result.failure = downFailure
      if write.kind == .put { write.result.outcome = .failed }
      return
    }
    let queued = QueuedWrite(write)
    if write.kind == .put { measure(queued) }
    write.ticket = Unmanaged.passRetained(queued)
    queue.submit(queued)
  }

  /// Sets the size, checksum and charge that a put's row will have, and refuses a put that the
  /// limits do not allow.
  private func measure(_ queued: QueuedWrite) {
    let entry = queued.entry!
    queued.size = queued.isInBlock ? entry.size : queued.file?.size ?? 0
    if queued.refusal != .none { return }
    if queued.file == nil {
      queued.checksum = entry.checksum != 0 ? entry.checksum : Checksum.xxh3(Bytes(entry.value))
    }
    let stored = queued.file?.size ?? entry.size
    let inFile = queued.file != nil
    queued.charge = Charge.of(
      key: entry.keySize, value: stored, extended: entry.extendedSize, tag: Int(entry.tagSize),
      inFile: inFile)
    if !takes(charge: queued.charge, stored: stored, inFile: inFile) { queued.refusal = .tooLarge }
  }

  func finish(_ write: inout StoreWrite) {
    guard let ticket = write.ticket else { return }
    let queued = unsafeDowncast(ticket.takeRetainedValue(), to: QueuedWrite.self)
    write.ticket = nil
    while queue.waitOrLead(for: queued) { committer.lead() }
    write.form?.file = nil
    setResult(of: &write, queued)
  }

  /// Commits the writes that were submitted before. Returns the failure of the last commit.
  @inline(never)
  func passQueue() -> Failure? {
    let barrier = QueuedWrite()
    queue.submit(barrier)
    while queue.waitOrLead(for: barrier) { committer.lead() }
    return barrier.result.failure
  }

  func flush() throws(Failure) {
    if members.belongToParent { throw downFailure }
    if let failure = passQueue() { throw failure }
    // Twice: accesses that gather while the first round is written are in the second round.
    for _ in 0..<2 {
      var hasMore = true
      while hasMore {
        try committer.withTurn { () throws(Failure) in
          guard isUp else { throw downFailure }
          hasMore = try committer.flushAccesses(256)
        }
      }
    }
  }

  func secureRemovals() throws(Failure) { if !isUp { throw downFailure } }

  private func setResult(of write: inout StoreWrite, _ queued: QueuedWrite) {
    write.result = queued.result
    let failure = queued.result.failure
    if failure == nil { write.result.failure = queued.refusalFailure }
    switch write.kind {
    case .put:
      if let failure {
        write.result.outcome = TierOutcome(of: failure)
      } else {
        write.result.outcome = queued.refusal == .none ? .stored : queued.refusal
      }
      switch write.result.outcome {
      case .stored:
        guard !write.result.isUnmet else { break }
        counters.puts.add()
        queued.file?.land()
      case .tooLarge, .noSpace: counters.refusals.add()
      default: break
      }
    case .remove:
      if failure == nil && queued.result.existed { counters.removals.add() }
    default:
      break
    }
  }
}
