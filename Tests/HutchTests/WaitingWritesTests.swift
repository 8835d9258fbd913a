import Synchronization
import Testing

@testable import Hutch

/// Reads look without a lock whether any write waits. From the first write of a key on until the
/// last has been carried out, the answer is yes: while a write takes the place of another one, or
/// of a bar, and a bar that of a write.
@Suite struct WaitingWritesTests {
  /// Set by the thread that changes, read by the one that looks.
  private final class Scene: @unchecked Sendable {
    let isOver = Atomic<Bool>(false)
    let looks = Atomic<Int>(0)
    let misses = Atomic<Int>(0)
  }

  /// How often a thread that looks all the time sees that nothing waits, while `change` is called
  /// again and again.
  private func misses(
    of isEmpty: @escaping () -> Bool, _ times: Int, _ change: @escaping () -> Void
  ) -> Int {
    let scene = Scene()
    onThreads(2) { number in
      if number == 0 {
        // The other thread may begin late.
        var done = 0
        while done < times || scene.looks.load(ordering: .relaxed) < times {
          change()
          done += 1
        }
        scene.isOver.store(true, ordering: .releasing)
      } else {
        var looks = 0
        while !scene.isOver.load(ordering: .acquiring) {
          looks += 1
          scene.looks.store(looks, ordering: .relaxed)
          if isEmpty() { scene.misses.wrappingAdd(1, ordering: .relaxed) }
        }
      }
    }
    return scene.misses.load(ordering: .relaxed)
  }

  /// A removal, with a block of its own.
  private func removal(_ block: UnownedBlock) -> QueuedWrite {
    QueuedWrite(StoreWrite(.remove, block, 1))
  }

  private func block() throws(Failure) -> Block {
    try withBytes("key") { key throws(Failure) in
      try Block.copying(key: key, value: key, extended: Extended(), record: Record())
    }
  }

  /// The block of the older write is freed as soon as no queue has the write any more, and its
  /// object's queue is told.
  @Test func aWriteTakesThePlaceOfAnotherInOneStep() throws {
    let queue = try WriteQueue.make()
    let releases = ReleaseQueue()
    var seen: [Bool] = []
    releases.onWaiting = { seen.append(queue.isOverlaid) }
    do {
      let object = try withBytes("key") { key throws(Failure) in
        try HostObject.block(
          key: key, tag: Bytes(start: nil, count: 0), record: Record(), nil, nil, releases)
      }
      queue.submit(removal(object.unowned))
    }
    var batch: [QueuedWrite] = []
    queue.take(&batch, most: 1, bytes: .max)
    batch = []
    let next = try block()
    queue.submit(removal(next.unowned))
    expect(seen == [true])
  }

  @Test func aKeyIsBarredInTheStepThatEndsItsWrite() throws {
    let queue = try WriteQueue.make()
    let block = try block()
    queue.submit(removal(block.unowned))
    var batch: [QueuedWrite] = []
    queue.take(&batch, most: 1, bytes: .max)
    let found = misses(of: { !queue.isOverlaid }, 20_000) {
      batch[0].result.failure = .noMemory
      queue.finish(batch)
      // The bar stays until the transaction of the next write has removed the row.
      queue.submit(removal(block.unowned))
      batch = []
      queue.take(&batch, most: 1, bytes: .max)
    }
    expect(found == 0)
    batch[0].result.failure = nil
    queue.finish(batch)
    expect(queue.isOverlaid)
    queue.forget(queue.liftBars(1))
    expect(!queue.isOverlaid)
  }

  @Test func anEntryThatLeavesMemoryTakesThePlaceOfAnOlderOneInOneStep() throws {
    let queue = try WriteBackQueue.make()
    let block = try block()
    block.unowned.version = 1
    _ = queue.add(block.unowned.retained(), 1, accessed: 0)
    let entry = block.unowned
    let found = misses(of: { queue.isEmpty }, 2_000) {
      for _ in 0..<50 { _ = queue.add(entry.retained(), 1, accessed: 0) }
      var batch: [StagedEntry] = []
      let ticket = queue.take(before: .max, into: &batch)
      queue.endBatch(ticket, batch.count)
    }
    expect(found == 0)
  }
}
