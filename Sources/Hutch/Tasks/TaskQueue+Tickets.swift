import Synchronization

/// The order of writes that are tasks and writes that are calls.
///
/// A task of a key draws a ticket at its submission. A call that writes a key, or clears, draws
/// one too while such tasks wait, and leaves it with the first of the key: a task that finds
/// there, when it comes to write, a later ticket than its own has been overtaken, and changes
/// nothing. Who asks, and who leaves a ticket, does so in the critical section in which it
/// writes, so one of two always comes second. The version of what is written is drawn there
/// too, for tiers want versions in the order of writes.
extension TaskQueue {
  /// Under the lock.
  func nextTicket() -> UInt64 {
    tickets += 1
    return tickets
  }

  /// Whether calls that write have to leave tickets.
  @inline(__always)
  var hasKeyedWrites: Bool { keyedWrites.load(ordering: .acquiring) != 0 }

  /// A call writes a key, whose hash this is.
  func overtake(_ hash: UInt64) {
    lock.lock()
    if let first = table.first(ofKey: hash) { first.extras.pointee.overtaken = nextTicket() }
    lock.unlock()
  }

  /// A call clears.
  func overtakeAll() {
    lock.lock()
    cleared = nextTicket()
    lock.unlock()
  }

  /// Whether a running task of a key has been overtaken.
  func isOvertaken(_ task: TaskPointer) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    let ticket = task.extras.pointee.ticket
    return cleared > ticket || task.extras.pointee.overtaken > ticket
  }

  /// Whether a task of the key has not ended.
  func hasTask(ofKey hash: UInt64) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    return table.first(ofKey: hash) != nil
  }
}
