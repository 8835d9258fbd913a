import Testing

@testable import Hutch

/// Keys are spread over the chains of hash tables, though the lowest bits of their hashes say what
/// kind of entry they are and are all alike.
@Suite struct ChainTests {
  /// Of 1,024 keys in 1,024 chains the longest has 12 with a probability below one in a million.
  private static let longest = 12

  @Test func placesAreSpread() throws {
    let hash = try KeyedHash()
    var counts = [Int](repeating: 0, count: 1024)
    for key in 0..<1024 {
      let place = withUnsafeBytes(of: key) { KeyedHash.place(of: hash.entry($0), mask: 1023) }
      counts[place] += 1
    }
    expect(counts.max()! <= ChainTests.longest)
  }

  @Test func tasksOfManyKeysMakeShortChains() throws {
    let queue = try TaskQueue(width: 1, hasThreads: false, length: 0) { _ in }
    let hash = try KeyedHash()
    for key in 0..<1024 {
      var spec = TaskSpec()
      spec.keyHash = withUnsafeBytes(of: key) { hash.entry($0) }
      expect(try queue.submit(try TaskPointer.make(spec, for: queue), spec) == .done)
    }
    expect(queue.table.longestChain <= ChainTests.longest)
    queue.abandon()
    expect(queue.table.longestChain == 0)
  }

  @Test func loadsOfManyKeysMakeShortChains() throws {
    let clock = Clock(function: nil, context: nil, release: nil)
    let opening = try Opening.inMemory(OpenOptions(), clock: clock)
    let handle = Handle(opening, .whole)
    var parts: [Loading?] = []
    for key in 0..<1024 {
      let loading = try withUnsafeBytes(of: key) { (bytes) throws(Failure) -> Loading? in
        var answer = try opening.cache.beginLoad(bytes, LoadSpec(), parent: nil, for: handle)
        return answer.loading.take()
      }
      parts.append(loading)
    }
    expect(opening.cache.loads.longestChain <= ChainTests.longest)
    parts.removeAll()
    _ = opening.close()
  }

  /// Where a million puts of one key wait, each would come by all that are behind it.
  @Test func aWriteComesByNoReservationThatItCannotOvertake() throws {
    let order = try WriteOrder.make(Versions(from: 1))
    let late = LateWrite.allocate(capacity: 101)
    late.initialize(repeating: WriteOrder.Reservation(), count: 101)
    defer { late.deallocate() }
    let hash: UInt64 = 1 << 12
    for number in 0..<100 { order.reserve(late + number, hash, forLoad: false) }
    order.reserve(late + 100, hash, forLoad: true)
    expect(order.length(hash, ofLoads: true) == 1)
    order.noteWrite(hash, by: late)
    expect(order.isOvertaken(late + 100))
    expect(order.length(hash, ofLoads: true) == 0)
    order.noteWrite(hash, ofCopy: true)
    order.withdraw(late)
    expect(order.length(hash, ofLoads: false) == 99)
    order.noteWrite(hash)
    expect(!order.hasReservations && !order.isReserved(hash))
    for number in 1..<100 {
      expect(order.isOvertaken(late + number))
      order.withdraw(late + number)
    }
    order.withdraw(late + 100)
    expect(!order.isOvertaken(late) && !order.hasReservations)
  }
}
