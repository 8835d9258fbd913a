import Testing

@testable import Hutch

/// The heap of deadlines against a list of the tasks that it has.
@Suite struct DeadlineHeapTests {
  @Test func theFirstIsDueFirst() throws {
    let queue = try TaskQueue(width: 1, hasThreads: false, length: 0) { _ in }
    var spec = TaskSpec()
    spec.deadline = 1
    var idle: [TaskPointer] = []
    for _ in 0..<200 { idle.append(try TaskPointer.make(spec, for: queue)) }
    var heap = DeadlineHeap()
    var watched: [TaskPointer] = []
    var random = Random(seed: testSeed)
    for _ in 0..<20_000 {
      if watched.isEmpty || !idle.isEmpty && random.next() % 16 < 9 {
        let task = idle.remove(at: Int(random.next() % UInt64(idle.count)))
        task.extras.pointee.due = Int64(random.next() % 50)
        heap.insert(task)
        watched.append(task)
      } else {
        let isFirst = random.next() % 2 == 0
        let any = Int(random.next() % UInt64(watched.count))
        let index = isFirst ? watched.firstIndex(of: heap.first!)! : any
        let task = watched.remove(at: index)
        heap.remove(task)
        expect(!task.extras.pointee.isWatched)
        idle.append(task)
      }
      let least = watched.map { $0.extras.pointee.due }.min()
      expect(heap.first?.extras.pointee.due == least, "seed \(testSeed)")
      expect(watched.allSatisfy { $0.extras.pointee.isWatched })
    }
    while let task = heap.first { heap.remove(task) }
    for task in watched + idle { task.drop() }
    queue.abandon()
  }
}
