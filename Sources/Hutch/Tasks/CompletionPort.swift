import CSystem
import Synchronization

/// Completions that wait until the host drains them, in the order in which their tasks ended.
///
/// The eventfd is readable while the list is not empty. The port writes it when the first
/// completion arrives and reads it when the list becomes empty, so a burst of completions costs one
/// system call.
final class CompletionPort {
  /// Protects the list and `isClosed`. May be taken under a queue's lock; no lock is taken under
  /// it.
  private let lock = Lock()
  /// The list has a reference to each.
  private var list = TaskList(.lane)
  private var count = 0
  private var isClosed = false
  let descriptor: Int32
  /// See Process.forks.
  let forks = Process.forks

  private init(_ descriptor: Int32) { self.descriptor = descriptor }

  /// Delegates: see Copying.
  convenience init() throws(Failure) {
    let number = eventfd(0, Int32(EFD_CLOEXEC) | Int32(EFD_NONBLOCK))
    guard number >= 0, let descriptor = Files.aboveStreams(number) else {
      throw .system("cannot make an eventfd")
    }
    self.init(descriptor)
    Process.watchForks()
  }

  deinit { _ = CSystem.close(descriptor) }

  func check() throws(Failure) {
    try Process.check(forks, "the port belongs to the parent of this process")
  }

  /// Called under the lock of the task's queue: takes a reference to the task over. True: the
  /// caller must call `signal`.
  func append(_ task: TaskPointer) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    list.append(task)
    count += 1
    return count == 1 || isClosed
  }

  /// Makes the descriptor readable; on a closed port, discards the completions that have come.
  func signal() {
    lock.lock()
    if !isClosed {
      if count > 0 { setReadable(true) }
      lock.unlock()
      return
    }
    var late = takeAll()
    lock.unlock()
    CompletionPort.endAll(&late, discarding: true)
  }

  /// Called under the lock, so that the descriptor agrees with the list.
  private func setReadable(_ isReadable: Bool) {
    var number: UInt64 = 1
    // For a non-blocking eventfd neither call can fail in a way that matters: it is full, or empty.
    if isReadable { _ = write(descriptor, &number, 8) } else { _ = read(descriptor, &number, 8) }
  }

  private func takeAll() -> TaskList {
    defer {
      list = TaskList(.lane)
      count = 0
    }
    return list
  }

  /// Makes up to `most` completions, or all that wait now. Returns how many. It takes one at a
  /// time: within it the host may drain or close the port, where the others wait.
  func drain(_ most: UInt64) throws(Failure) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    if isClosed { throw Failure(.closed, "the port has been closed") }
    let most = most == 0 ? UInt64(count) : min(most, UInt64(count))
    var drained: UInt64 = 0
    while drained < most, let task = list.popFirst() {
      count -= 1
      if count == 0 { setReadable(false) }
      lock.unlock()
      CompletionPort.end(task, discarding: false)
      drained += 1
      lock.lock()
    }
    return drained
  }

  private static func end(_ task: TaskPointer, discarding: Bool) {
    let queue = task.pointee.queue.takeUnretainedValue()
    queue.within(task) {
      if !discarding && task.pointee.complete != nil { queue.deliver(task) }
      task.releaseCompletion()
    }
    task.end()
  }

  private static func endAll(_ tasks: inout TaskList, discarding: Bool) {
    while let task = tasks.popFirst() { end(task, discarding: discarding) }
  }

  /// Accepts no more completions. False: the port was closed before.
  func close(discarding: Bool) -> Bool {
    lock.lock()
    guard !isClosed else {
      lock.unlock()
      return false
    }
    isClosed = true
    var rest = takeAll()
    setReadable(false)
    lock.unlock()
    CompletionPort.endAll(&rest, discarding: discarding)
    return true
  }
}

/// A host's references to a port. Completions that wait refer to the port, so without these it
/// would never end.
final class PortHandle {
  let port: CompletionPort
  init(_ port: CompletionPort) { self.port = port }
  deinit { _ = port.close(discarding: true) }
}
