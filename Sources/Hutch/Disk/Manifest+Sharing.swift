import CSQLite
import CSystem

/// The commits of other processes.
extension Manifest {
  /// Reads the meta row anew. The caller has the turn, so no other process writes. Returns the
  /// limits in force. `trustsLog`: the numbers of the log in the shared state are right.
  func reload(
    _ shared: SharedState, trustsLog: Bool, in directory: Directory
  ) throws(Failure) -> TierLimits {
    let sums = try self.sums.of(connection)
    var limits = TierLimits()
    var changed = meta
    var newest: Int64 = 0
    try Connection.waitOut { () throws(Failure) in
      defer { sums.reset() }
      guard try sums.step() else { throw Failure(.corrupt, "the manifest has no meta row") }
      let found = Sums(sums)
      changed.use(found, sums)
      limits = Manifest.limits(sums)
      newest = found.lastID
    }
    guard changed.isSound, newest >= 0, newest < Meta.largest else {
      throw Failure(.corrupt, "the manifest's meta row is damaged")
    }
    meta = changed
    noteOthers()
    lastID = max(lastID, newest)
    newestOfMeta = lastID
    var log = shared.log
    if !trustsLog {
      let status = Files.status(Files.path(ManifestFile.log), at: directory.descriptor)
      let size = status?.size ?? 0
      log = (size, size)
    }
    noteLog(used: log.used, size: log.size)
    return limits
  }
}

extension Connection {
  /// Runs `body` again while SQLite answers 'busy': another process reads the log's index anew,
  /// after one was killed, or closes its connections.
  static func waitOut(_ body: () throws(Failure) -> Void) throws(Failure) {
    var tries: useconds_t = 0
    while true {
      do throws(Failure) {
        return try body()
      } catch {
        tries += 1
        guard error.sqlite & 0xFF == SQLITE_BUSY, tries < 5000 else { throw error }
        _ = tries < 100 ? sched_yield() : usleep(200)
      }
    }
  }

  /// Sets whether every statement of the connection waits for the locks of others, likewise.
  func waitsOut(_ does: Bool) {
    sqlite3_busy_handler(
      handle,
      does
        ? { _, tries in
          _ = tries < 100 ? sched_yield() : usleep(200)
          return tries < 5000 ? 1 : 0
        } : nil, nil)
  }
}
