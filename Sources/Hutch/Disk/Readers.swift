import CSQLite
import CSystem
import Synchronization

/// A small fixed pool of connections that read, each opened when it is first needed. A read
/// never waits for a writer, and for another read only when all are in use.
///
/// To begin and to end a transaction is half of the work of reading a small row in SQLite. So a
/// connection that finds the manifest as it left it begins one and keeps it, for the reads that
/// follow; the first one after a commit ends it. It stands in the way of checkpoints only,
/// which calls `endKept`. Where other processes have the directory open, none is kept: the others'
/// commits are not seen here, and their checkpoints do not call `endKept`.
final class Readers {
  private final class Reader {
    /// Protects `connection` and the read that uses it. Only the state's lock and that of the
    /// access times are taken under it; it is held for a statement, not while a content file is
    /// read.
    let lock: Lock
    var connection: ReadConnection?
    init() throws(Failure) { lock = try Lock() }
  }

  private let readers: [Reader]
  private static let count = 4
  /// Counts the events that may have changed the manifest. Release after a commit and before its
  /// end is told, acquire before a read: a thread that has been told of a commit reads it.
  private let states = Atomic<UInt64>(0)

  /// The state of the manifest as a connection left it: the commits of this process, and those
  /// of the directory (`SharedState.quietState`).
  struct State: Equatable {
    let own: UInt64
    let shared: UInt64
  }

  init() throws(Failure) {
    var readers: [Reader] = []
    for _ in 0..<Readers.count { readers.append(try Reader()) }
    self.readers = readers
  }

  /// There may have been a commit.
  func noteCommit() { states.wrappingAdd(1, ordering: .releasing) }

  /// Ends the transactions that are kept: those of connections in use at their next read.
  func endKept() {
    noteCommit()
    for reader in readers where reader.lock.tryLock() {
      reader.connection?.endKept()
      reader.lock.unlock()
    }
  }

  /// Runs `body` with a connection to the manifest in the directory that `place` gives; nil
  /// if it gives none. `shared`: the commits of the directory so far; nil: a transaction must not
  /// be kept.
  func withConnection<R: ~Copyable>(
    in place: () -> Directory?, at shared: UInt64?, _ body: (ReadConnection) throws(Failure) -> R
  ) throws(Failure) -> R? {
    guard let reader = try reserve(in: place, at: shared) else { return nil }
    defer { reader.lock.unlock() }
    do throws(Failure) {
      return try body(reader.connection.unsafelyUnwrapped)
    } catch {
      reader.connection?.endKept()
      throw error
    }
  }

  /// Locks a reader that has a connection, ready to be read with.
  @inline(never)
  private func reserve(
    in place: () -> Directory?, at shared: UInt64?
  ) throws(Failure) -> Reader? {
    // Threads spread by an address of their own; which reader a thread gets does not matter.
    let start = Int(truncatingIfNeeded: UInt(pthread_self()) >> 12) & (Readers.count - 1)
    var chosen = readers[start]
    var isLocked = false
    for i in 0..<Readers.count where !isLocked {
      let reader = readers[(start + i) & (Readers.count - 1)]
      if reader.lock.tryLock() {
        chosen = reader
        isLocked = true
      }
    }
    if !isLocked { chosen.lock.lock() }
    do throws(Failure) {
      if let connection = chosen.connection {
        let own = states.load(ordering: .acquiring)
        try connection.begin(in: shared.map { State(own: own, shared: $0) })
        return chosen
      }
      if let directory = place() {
        chosen.connection = try ReadConnection.open(directory)
        return chosen
      }
    } catch {
      chosen.lock.unlock()
      throw error
    }
    chosen.lock.unlock()
    return nil
  }

  /// Closes the connections, each when its reader has ended. The caller has seen to it
  /// that `place` gives none by now.
  func close() {
    for reader in readers {
      reader.lock.withLock { reader.connection = nil }
    }
  }

  // MARK: fork

  /// Takes every reader's lock and closes the connections. False: not in time, and none.
  func closeAndHold(until end: Deadline) -> Bool {
    for index in 0..<Readers.count {
      guard readers[index].lock.lock(until: end) else {
        for taken in 0..<index { readers[taken].lock.unlock() }
        return false
      }
    }
    for reader in readers { reader.connection = nil }
    return true
  }

  func endHold() { for reader in readers { reader.lock.unlock() } }

  /// In a child that has no part in the directory: the connections are the parent's.
  func leaveBehind() {
    for reader in readers {
      reader.lock.renew()
      if let connection = reader.connection { _ = Unmanaged.passRetained(connection) }
      reader.connection = nil
    }
  }
}
