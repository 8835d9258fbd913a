import CSystem
import Synchronization
import Testing

@testable import Hutch

@Suite struct GateTests {
  /// A gate, and what is known of the threads that use it.
  final class Hall {
    let gate: Gate
    let inside = Atomic<Int>(0)
    let isStill = Atomic<Bool>(false)
    let violations = Atomic<Int>(0)

    init() throws { gate = try Gate() }

    /// Enters and leaves until the gate is closed.
    func visit() {
      while gate.enter() {
        inside.wrappingAdd(1, ordering: .sequentiallyConsistent)
        if isStill.load(ordering: .sequentiallyConsistent) { note() }
        sched_yield()
        if isStill.load(ordering: .sequentiallyConsistent) { note() }
        inside.wrappingSubtract(1, ordering: .sequentiallyConsistent)
        gate.leave()
      }
    }

    func note() { violations.wrappingAdd(1, ordering: .relaxed) }

    /// From here on, until `isStill` is false again, a thread inside is a violation.
    func expectNobody() {
      isStill.store(true, ordering: .sequentiallyConsistent)
      if inside.load(ordering: .sequentiallyConsistent) != 0 { note() }
      sched_yield()
    }
  }

  /// More threads than there are lines, so some share one.
  static let threads = 2 * ThreadLines.count

  @Test func noThreadIsInsideAfterAPauseOrAClose() throws {
    let hall = try Hall()
    onThreads(GateTests.threads + 1) { number in
      if number > 0 { return hall.visit() }
      for _ in 0..<100 {
        hall.gate.pause()
        if !hall.gate.awaitQuiet(until: Deadline(after: Int64.max)) { hall.note() }
        hall.expectNobody()
        hall.isStill.store(false, ordering: .sequentiallyConsistent)
        hall.gate.resume()
        sched_yield()
      }
      hall.gate.close()
      hall.expectNobody()
    }
    expect(hall.violations.load(ordering: .relaxed) == 0)
    let isLetIn = hall.gate.enter()
    expect(!isLetIn)
  }

  @Test func theNumberIsWhatAllThreadsHaveAdded() throws {
    final class Numbers {
      let lines: ThreadLines
      init() throws { lines = try ThreadLines() }
    }
    let numbers = try Numbers()
    onThreads(GateTests.threads) { _ in
      for _ in 0..<1000 { numbers.lines.own(1).pointee.add() }
    }
    let sums = (numbers.lines.sum(0), numbers.lines.sum(1))
    let ofOneLine = numbers.lines[0, 1].pointee.load(ordering: .relaxed)
    let all = UInt64(GateTests.threads) * 1000
    expect(sums == (0, all))
    expect(ofOneLine < all)
  }
}
