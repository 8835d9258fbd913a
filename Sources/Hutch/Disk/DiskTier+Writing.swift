import CSystem
import Synchronization

/// Writes: prepare, submit, complete. The leader's transaction is in DiskTier+Committing.swift, one
/// write within it in DiskTier+CarryingOut.swift.
extension DiskTier {
  func prepare(_ write: StorageWrite) {
    guard let entry = write.entry else { return }
    let queued = QueuedWrite(write)
    write.storage = queued
    guard write.kind == .put else { return }
    if !isUp { reopenIfDue() }

    if let file = write.file, file.isBlockEmpty || file.content?.isWhole ?? false {
      adopt(file, queued)
      return
    }
    queued.size = entry.size
    do throws(Failure) {
      if let failure = write.encodingFailure { throw failure }
      let stored = Bytes(entry.value)
      let inFile = goesIntoFile(stored.count)
      guard isWithinLimits(queued, stored: stored.count, inFile: inFile) else { return }
      queued.checksum = entry.checksum != 0 ? entry.checksum : Checksum.xxh3(stored)
      if inFile { try writeContent(queued, stored, write.file?.suffix ?? FileSuffix()) }
    } catch {
      counters.failures.add()
      queued.refusal = error.status == .noSpace ? .noSpace : .failed
      queued.refusalFailure = error
    }
  }

  /// A put whose value is in a file already, or was refused on the way there.
  private func adopt(_ file: ValueFile, _ queued: QueuedWrite) {
    queued.hasValue = !file.isBlockEmpty
    queued.size = file.size
    guard let content = file.content, content.isWhole, file.refusal == .none else {
      if file.failure != nil { counters.failures.add() }
      queued.refusal = file.refusal == .none ? .failed : file.refusal
      queued.refusalFailure = file.failure
      return
    }
    queued.checksum = content.checksum
    queued.file = content.name
    queued.directory = content.directory
    if !isWithinLimits(queued, stored: file.size, inFile: true) { discardFile(of: queued) }
  }

  /// Sets the charge; false: the entry is refused for it.
  private func isWithinLimits(_ queued: QueuedWrite, stored: Int, inFile: Bool) -> Bool {
    let entry = queued.entry!
    queued.charge = Charge.of(
      key: entry.keySize, value: stored, extended: entry.extendedSize, tag: Int(entry.tagSize),
      inFile: inFile)
    guard
      UInt64(queued.charge) > limits.largestCharge
        || (!inFile && stored > DiskTier.largestInline)
    else { return true }
    queued.refusal = .tooLarge
    return false
  }

  /// SQLite takes rows of up to 1,000,000,000 bytes (SQLITE_MAX_LENGTH, as it comes).
  static let largestInline = 900_000_000

  func goesIntoFile(_ size: Int) -> Bool {
    switch StorageKind(rawValue: counters.storage.load(ordering: .relaxed)) {
    case .sqlite: false
    case .file: true
    default: size > min(options.inlineThreshold, DiskTier.largestInline)
    }
  }

  /// What a content file waits for before its row is committed.
  var syncing: ContentFiles.Syncing {
    switch durability {
    case .process: .nothing
    case .power: .bytes
    case .sync: .name
    }
  }

  private func writeContent(
    _ queued: QueuedWrite, _ value: Bytes, _ suffix: FileSuffix
  ) throws(Failure) {
    let (name, directory) = try newName(suffix)
    do throws(Failure) {
      do throws(Failure) {
        try ContentFiles.write(value, name, in: directory, syncing)
      } catch {
        guard error.status == .noSpace else { throw error }
        makeRoom(Int64(value.count))
        try ContentFiles.write(value, name, in: directory, syncing)
      }
    } catch {
      land(name)
      throw error
    }
    queued.file = name
    queued.directory = directory
  }

  /// The write's content file will have no row.
  private func discardFile(of queued: QueuedWrite) {
    guard let name = queued.file, let directory = queued.directory, !queued.hasLanded else {
      return
    }
    ContentFiles.discard(name, in: directory)
    land(name)
    // Its name stays: a read that has found the write in the queue may be looking at it.
    queued.hasLanded = true
  }

  func submit(_ write: StorageWrite) {
    if isLeft { return }
    queue.submit(queued(write))
  }

  /// The store's part of a write, made if `prepare` was left out.
  private func queued(_ write: StorageWrite) -> QueuedWrite {
    if let storage = write.storage { return unsafeDowncast(storage, to: QueuedWrite.self) }
    let queued = QueuedWrite(write)
    write.storage = queued
    return queued
  }

  func abandon(_ write: StorageWrite) {
    guard let storage = write.storage else { return }
    discardFile(of: unsafeDowncast(storage, to: QueuedWrite.self))
    write.storage = nil
  }

  func complete(_ write: StorageWrite) {
    let queued = queued(write)
    if isLeft { queued.failure = downFailure }
    while !isLeft && queue.waitOrLead(for: queued) { lead() }
    // The two refer to each other.
    write.storage = nil
    conclude(write, queued)
  }

  private func conclude(_ write: StorageWrite, _ queued: QueuedWrite) {
    let wasAnnounced = queued.replaced.map { !isExpired($0, queued.key, at: write.time) } ?? false
    write.existed = queued.existed || wasAnnounced
    write.failure = queued.failure ?? queued.refusalFailure
    if let name = queued.file {
      if queued.failure == nil && queued.refusal == .none && !write.isUnmet {
        land(name)
        queued.hasLanded = true
      } else {
        discardFile(of: queued)
      }
    }
    switch write.kind {
    case .put:
      if let failure = queued.failure {
        write.outcome = failure.status == .noSpace ? .noSpace : .failed
      } else {
        write.outcome = queued.refusal == .none ? .stored : queued.refusal
      }
      switch write.outcome {
      case .stored: counters.puts.add()
      case .tooLarge, .noSpace: counters.refusals.add()
      default: break
      }
    case .remove:
      if queued.failure == nil && queued.existed { counters.removals.add() }
    default:
      break
    }
  }
}
