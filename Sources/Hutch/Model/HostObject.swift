import CSystem
import Synchronization

/// A host's object as the value of a block: the pointer, the function that releases it, and the
/// queue that takes the block after its last reference. The block itself is the queue's node, so
/// the release of an object allocates nothing and is possible anywhere.
struct HostObject {
  fileprivate struct Payload {
    var object: UnsafeMutableRawPointer?
    var release: Release?
    /// A counted reference.
    var queue: Unmanaged<ReleaseQueue>
    /// The next block in the queue.
    var next: UnsafeMutableRawPointer?
    /// See Process.forks: only the parent may release the parent's objects.
    let forks = Process.forks
  }

  let block: UnownedBlock

  fileprivate var payload: UnsafeMutablePointer<Payload> {
    block.value.baseAddress.unsafelyUnwrapped.bindMemory(to: Payload.self, capacity: 1)
  }

  var pointer: UnsafeMutableRawPointer? { payload.pointee.object }

  /// A block with this key and record that stands for an object. If it fails, it does not take the
  /// object over.
  @inline(never)
  static func block(
    key: Bytes, tag: Bytes, record: Record, _ object: UnsafeMutableRawPointer?,
    _ release: Release?, _ queue: ReleaseQueue
  ) throws(Failure) -> Block {
    let extended = Extended(Bytes(start: nil, count: 0), tag: tag)
    var record = record
    record.setSizes(of: extended)
    record.size = MemoryLayout<Payload>.stride
    let block = try Block.allocate(key: key, record: record)
    extended.copy(to: block.unowned.extendedData)
    HostObject(block: block.unowned).payload.initialize(
      to: Payload(
        object: object, release: release, queue: Unmanaged.passRetained(queue), next: nil))
    block.unowned.setObject(true)
    return block
  }

  /// Returns the object to the caller, which has the block's only reference: with it the block
  /// ends, and nothing waits in the queue.
  func disown() {
    payload.pointee.queue.release()
    block.setObject(false)
  }

  /// Calls the release function and frees the block. The caller holds no lock.
  fileprivate func end() {
    let payload = payload.pointee
    payload.release?(payload.object)
    Heap.give(block.raw)
    payload.queue.release()
  }
}

extension UnownedBlock {
  /// The last reference to an object's block was released. `atOnce`: the caller holds no lock.
  func endObject(atOnce: Bool) {
    // The block's reference to the queue may end with the block, and may be the last one.
    let queue = HostObject(block: self).payload.pointee.queue.takeUnretainedValue()
    withExtendedLifetime(queue) { queue.push(self, atOnce: atOnce) }
  }
}

/// Objects without a reference that wait for their release functions. The maintenance thread or the
/// host calls these, never the thread that gave up the last reference, since it may hold a lock.
/// Once the queue is closed, the thread that gives up the last reference releases the objects that
/// wait. The memory tier is an exception, since its caller may hold a stripe: there the next thread
/// releases them, or the end of the cache object.
final class ReleaseQueue {
  /// Protects what follows. No other lock is taken under it.
  private let lock = Lock()
  /// The blocks, linked by their payloads, the oldest in front.
  private var first: UnsafeMutableRawPointer?
  private var last: UnsafeMutableRawPointer?
  private var isClosed = false
  /// The number of objects that wait, for statistics. Written under the lock.
  private let waitingCount = Atomic<UInt64>(0)
  /// Called when the first object enters the empty queue. Set before the first push. Nil: the host
  /// drains the queue.
  var onWaiting: (() -> Void)?
  /// The cache, as ThreadState knows it. Set before the first push.
  var owner: UnsafeMutableRawPointer?

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

  /// Releases up to this many objects, in the order of their arrival. Returns how many. The caller
  /// holds no lock.
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

  /// Releases the objects that wait; from here on each object is released at once.
  func close() {
    lock.withLock { isClosed = true }
    drain(most: .max)
  }
}
