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
  /// The last reference to an object's block is gone.
  func endObject() {
    // The block's reference to the queue may go with the block, and be the last.
    let queue = HostObject(block: self).payload.pointee.queue.takeUnretainedValue()
    withExtendedLifetime(queue) { queue.push(self) }
  }
}

/// Objects that nobody holds any more and whose release functions wait to be called, by the
/// maintenance thread or by the host: never where the last reference happened to go, under a
/// lock perhaps. Once the queue is closed, by whoever gives up the last reference.
final class ReleaseQueue {
  /// The block that was pushed last; 0: none. Sequentially consistent with `isClosed`: of a push
  /// and a close at once, one at least sees the other.
  private let head = Atomic<UInt>(0)
  private let isClosed = Atomic<Bool>(false)
  /// Waiting, for statistics.
  private let waitingCount = Atomic<UInt64>(0)
  /// Protects `taken`. No other lock is taken under it.
  private let lock: Lock
  /// Blocks that were taken from `head`, the first to go in front.
  private var taken: UnsafeMutableRawPointer?
  /// See Process.forks: what the parent's objects need is the parent's to do.
  private let forks = Process.forks
  /// Called when there is something to release after there was nothing. Set before the first
  /// push. Nil: the host asks for it.
  var onWaiting: (() -> Void)?

  init() throws(Failure) { lock = try Lock() }

  var waiting: UInt64 { waitingCount.load(ordering: .relaxed) }

  fileprivate func push(_ block: UnownedBlock) {
    if forks != Process.forks { return }
    let payload = HostObject(block: block).payload
    _ = waitingCount.wrappingAdd(1, ordering: .relaxed)
    var first = head.load(ordering: .relaxed)
    while true {
      payload.pointee.next = UnsafeMutableRawPointer(bitPattern: first)
      let (done, original) = head.weakCompareExchange(
        expected: first, desired: UInt(bitPattern: block.raw),
        ordering: .sequentiallyConsistent)
      if done { break }
      first = original
    }
    if isClosed.load(ordering: .sequentiallyConsistent) {
      drain(most: .max)
    } else if first == 0 {
      onWaiting?()
    }
  }

  /// Releases up to so many objects, first come, first released. Returns how many. With no lock
  /// held.
  @discardableResult
  func drain(most: UInt64) -> UInt64 {
    var count: UInt64 = 0
    while count < most, let next = take() {
      HostObject(block: UnownedBlock(next)).end()
      _ = waitingCount.wrappingSubtract(1, ordering: .relaxed)
      count += 1
    }
    return count
  }

  private func take() -> UnsafeMutableRawPointer? {
    lock.lock()
    defer { lock.unlock() }
    if taken == nil {
      var next = UnsafeMutableRawPointer(
        bitPattern: head.exchange(0, ordering: .sequentiallyConsistent))
      while let block = next {
        let payload = HostObject(block: UnownedBlock(block)).payload
        next = payload.pointee.next
        payload.pointee.next = taken
        taken = block
      }
    }
    guard let first = taken else { return nil }
    taken = HostObject(block: UnownedBlock(first)).payload.pointee.next
    return first
  }

  /// Releases what waits, and from here on each object at once.
  func close() {
    isClosed.store(true, ordering: .sequentiallyConsistent)
    drain(most: .max)
  }
}
