/// Writes: each is committed by `submit`, under its key's stripe.
extension LogStorage {
  /// Waits for the directory's lock if another process has it, and for as long as one that is
  /// stopped has it.
  func submit(_ write: StorageWrite) {
    lookIfDue()
    guard let store = live else { return fail(write) }
    let moment = Moment.at(write.time)
    do throws(Failure) {
      switch write.kind {
      case .clear:
        write.existed = store.count > 0
        try store.clear(until: Deadline(at: Int64.max))
      case .put, .remove, .touch:
        try carryOut(write, store, at: moment)
      }
    } catch {
      counters.failures.count()
      write.failure = error
      write.outcome = .failed
    }
  }

  func complete(_ write: StorageWrite) { settle() }

  private func carryOut(
    _ write: StorageWrite, _ store: LogStore, at moment: Moment
  ) throws(Failure) {
    guard let entry = write.entry else { return }
    let key = Bytes(entry.key)
    let kind: LogWrite.Kind =
      switch write.kind {
      case .put: write.encodingFailure == nil ? .put : .remove
      case .touch: .touch
      case .remove, .clear: .remove
      }
    var log = LogWrite(kind, key, own(write.hash, key, in: store))
    log.counterHash = write.hash
    log.condition = write.condition
    // Versions are drawn, and writes submitted, in one order by a process; of two processes the
    // one that comes later decides.
    log.yieldsToNewer = false
    if kind == .put { log.entry = entry }
    if kind == .touch { log.times = write.record }
    store.write(&log, at: moment) { done in
      if !done.isUnmet {
        observer?.storeCommits(
          key, write.hash, kind == .touch ? done.existing : write.version, done.mark)
      }
    }
    write.existed = log.existed
    write.existing = log.existing
    write.isUnmet = log.isUnmet
    write.mark = log.isUnmet ? 1 : log.mark
    write.markBefore = log.markBefore
    write.failure = log.failure ?? write.encodingFailure
    write.outcome = kind == .put && !log.isUnmet ? log.outcome : .none
    if write.encodingFailure != nil && !log.isUnmet {
      counters.failures.count()
      write.outcome = .failed
    }
    if let failure = log.failure {
      if failure.status == .noSpace { counters.refusals.count() } else { counters.failures.count() }
    }
  }

  private func fail(_ write: StorageWrite) {
    write.failure = downFailure
    write.outcome = .failed
    stateLock.withLock {
      // Of a clear every key; and if there is no memory for one.
      let isNoted = write.entry.map { (try? barred.append(Bytes($0.key), 0)) != nil } ?? false
      barredCount = isNoted ? barredCount + 1 : LogStorage.mostBarred + 1
      if barredCount > LogStorage.mostBarred {
        barredCount = LogStorage.mostBarred + 1
        barred.removeAll()
      }
    }
  }
}
