import CSQLite
import CSystem
import Synchronization

/// The connections that read: a pool of four, each opened when it is first needed. A read never
/// waits for a writer. It waits for another read only if all connections are in use.
///
/// To begin and to end a transaction is half of the work of reading a small row in SQLite. So a
/// connection that finds the manifest in the state in which it left it begins a transaction and
/// keeps it for the reads that follow. The first read after a commit ends the transaction. A kept
/// transaction is in the way of a checkpoint alone, which ends all of them first (`endKept`). While
/// other processes have the directory open no transaction is kept: this process does not learn of
/// their commits at once, and their checkpoints cannot call `endKept`.
final class Readers {
  private final class Reader {
    /// Protects `connection`, and is held by the read that uses it. The lock of the tier's state
    /// and that of the access times are the only ones taken under it. It is held for a statement,
    /// and not while a content file is read.
    let lock = Lock()
    var connection: ReadConnection?

    @inline(never) init() {}
  }

  private let readers = InlineArray<4, Reader> { _ in Reader() }
  /// Counts the events that may have changed the manifest. A commit adds to it, with release,
  /// before it tells the caller of its end; a read loads it with acquire. So a thread that knows
  /// of a commit reads what was committed.
  private let states = Atomic<UInt64>(0)

  /// The state of the manifest in which a connection left it: the number of the commits of this
  /// process, and of those of the directory (`SharedState.quietState`).
  struct State: Equatable {
    let own: UInt64
    let shared: UInt64
  }

  /// There may have been a commit.
  func noteCommit() { states.wrappingAdd(1, ordering: .releasing) }

  /// Ends the transactions that are kept. The next read of a connection that is in use ends its
  /// own.
  func endKept() {
    noteCommit()
    forEach { reader in
      guard reader.lock.tryLock() else { return }
      reader.connection?.endKept()
      reader.lock.unlock()
    }
  }

  @inline(never)
  private func forEach(_ body: (Reader) -> Void) {
    for i in readers.indices { body(readers[i]) }
  }

  /// Runs `body` with a connection to the manifest in the directory that `place` gives; false: it
  /// gives none. `shared`: the number of the directory's commits so far; nil: no transaction may be
  /// kept.
  @inline(never)
  func withConnection(
    in place: () -> Directory?, at shared: UInt64?,
    _ body: (ReadConnection) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    guard let reader = try reserve(in: place, at: shared) else { return false }
    defer { reader.lock.unlock() }
    do throws(Failure) {
      try body(reader.connection.unsafelyUnwrapped)
      return true
    } catch {
      reader.connection?.endKept()
      throw error
    }
  }

  /// Locks a reader, and returns it with a connection on which a read can begin.
  @inline(never)
  private func reserve(
    in place: () -> Directory?, at shared: UInt64?
  ) throws(Failure) -> Reader? {
    // Threads are spread over the readers by their addresses; any reader will do for any thread.
    let start = Int(truncatingIfNeeded: UInt(pthread_self()) >> 12) & (readers.count - 1)
    var number = start
    var isLocked = false
    repeat {
      isLocked = readers[number].lock.tryLock()
      if !isLocked { number = (number + 1) & (readers.count - 1) }
    } while !isLocked && number != start
    let chosen = readers[number]
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

  /// Closes each connection when the read that uses it has ended. The `place` of later calls gives
  /// no directory.
  func close() {
    forEach { reader in reader.lock.withLock { reader.connection = nil } }
  }

  // MARK: fork

  /// Takes every reader's lock and closes the connections. False: not in time, and no lock is held.
  func closeAndHold(until end: Deadline) -> Bool {
    var held = 0
    while held < readers.count && readers[held].lock.lock(until: end) { held += 1 }
    if held == readers.count {
      forEach { $0.connection = nil }
      return true
    }
    for i in 0..<held { readers[i].lock.unlock() }
    return false
  }

  func endHold() { forEach { $0.lock.unlock() } }

  /// For a child that has no part in the directory. The connections are the parent's, so the child
  /// leaks them instead of closing them.
  func leaveBehind() {
    forEach { reader in
      reader.lock.renew()
      if let connection = reader.connection { _ = Unmanaged.passRetained(connection) }
      reader.connection = nil
    }
  }
}
