import CSystem
import Synchronization

/// A host's object as the value of a block: the pointer, the function that releases it, and the
/// queue that the block goes to when nobody holds it any more. The block itself is the queue's
/// node, so letting go of an object allocates nothing and can be done anywhere.
struct HostObject {
  typealias Release = @convention(c) (UnsafeMutableRawPointer?) -> Void

  fileprivate struct Payload {
    var object: UnsafeMutableRawPointer?
    var release: Release?
    /// A counted reference.
    var queue: Unmanaged<ReleaseQueue>
    /// The block that is behind this one in the queue.
    var next: UnsafeMutableRawPointer?
    /// See Process.forks: what the parent's objects need is the parent's to do.
    let forks = Process.forks
  }

  let block: UnownedBlock

  fileprivate var payload: UnsafeMutablePointer<Payload> {
    block.payload.assumingMemoryBound(to: Payload.self)
  }

  var pointer: UnsafeMutableRawPointer? { payload.pointee.object }

  /// A block with this key and record that stands for an object. Fails with nothing done: the
  /// object is not taken over.
  static func block(
    key: Bytes, record: Record, _ object: UnsafeMutableRawPointer?, _ release: Release?,
    _ queue: ReleaseQueue
  ) throws(Failure) -> Block {
    let block = try Block.allocate(
      key: key, record: record, payload: MemoryLayout<Payload>.stride)
    block.unowned.payload.bindMemory(to: Payload.self, capacity: 1).initialize(
      to: Payload(
        object: object, release: release, queue: Unmanaged.passRetained(queue), next: nil))
    block.unowned.setObject()
    return block
  }

  /// The object is the caller's, who made the block, again.
  func disown() { payload.pointee.release = nil }

  /// Calls the release function and frees the block. No lock is held.
  fileprivate func end() {
    let payload = payload.pointee
    payload.release?(payload.object)
    free(block.raw)
    payload.queue.release()
  }
}

extension UnownedBlock {
  /// The last reference to an object's block is gone. `atOnce`: no lock is held.
  func endObject(atOnce: Bool) {
    // The block's reference to the queue may go with the block, and be the last.
    let queue = HostObject(block: self).payload.pointee.queue.takeUnretainedValue()
    withExtendedLifetime(queue) { queue.push(self, atOnce: atOnce) }
  }
}

/// Objects without a reference whose release functions wait to be called, by the maintenance thread
/// or by the host: never where the last reference happened to go, under a lock perhaps. Once the
/// queue is closed, the thread that gives up the last reference releases what waits, unless the
/// memory tier gives it up, whose caller may have a stripe; then the next thread does, or the end of
/// the cache object.
final class ReleaseQueue {
  /// Protects what follows. No other lock is taken under it.
  private let lock: Lock
  /// The blocks, linked by their payloads, the first to go in front.
  private var first: UnsafeMutableRawPointer?
  private var last: UnsafeMutableRawPointer?
  private var isClosed = false
  /// Waiting, for statistics. Written under the lock.
  private let waitingCount = Atomic<UInt64>(0)
  /// Called when there is something to release after there was nothing. Set before the first
  /// push. Nil: the host asks for it.
  var onWaiting: (() -> Void)?
  /// The cache, as ThreadState knows it. Set before the first push.
  var owner: UnsafeMutableRawPointer?

  init() throws(Failure) { lock = try Lock() }

  var waiting: UInt64 { waitingCount.load(ordering: .relaxed) }

  fileprivate func push(_ block: UnownedBlock, atOnce: Bool) {
    if Process.isParents(HostObject(block: block).payload.pointee.forks) { return }
    HostObject(block: block).payload.pointee.next = nil
    lock.lock()
    let isFirst = first == nil
    if let last { HostObject(block: UnownedBlock(last)).payload.pointee.next = block.raw }
    if isFirst { first = block.raw }
    last = block.raw
    waitingCount.wrappingAdd(1, ordering: .relaxed)
    let isClosed = self.isClosed
    lock.unlock()
    if isClosed {
      if atOnce { drain(most: .max) }
    } else if isFirst {
      onWaiting?()
    }
  }

  /// Releases up to so many objects, first come, first released. Returns how many. With no lock
  /// held.
  @discardableResult
  func drain(most: UInt64) -> UInt64 {
    guard waiting > 0, let owner else { return 0 }
    return ThreadState.within(owner) {
      var count: UInt64 = 0
      while count < most, let next = take() {
        HostObject(block: UnownedBlock(next)).end()
        count += 1
      }
      return count
    }
  }

  private func take() -> UnsafeMutableRawPointer? {
    lock.lock()
    defer { lock.unlock() }
    guard let taken = first else { return nil }
    first = HostObject(block: UnownedBlock(taken)).payload.pointee.next
    if first == nil { last = nil }
    waitingCount.wrappingSubtract(1, ordering: .relaxed)
    return taken
  }

  /// In the child of a fork: what waits is the parent's.
  func beginInChild() {
    lock.renew()
    first = nil
    last = nil
    waitingCount.store(0, ordering: .relaxed)
  }

  /// Releases what waits, and from here on each object at once.
  func close() {
    lock.withLock { isClosed = true }
    drain(most: .max)
  }
}
