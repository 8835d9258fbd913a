import Testing

@testable import Hutch

/// The page of a walk: of the keys that were offered, each once and in order, the first ones.
@Suite struct SortedKeysTests {
  @Test func theFirstOfAllKeysAreKept() throws {
    var random = Random(seed: testSeed)
    var page = SortedKeys(try KeyedHash())
    for round in 0..<(isLong ? 150 : 60) {
      let room = 1 + Int(random.next() % (round % 3 == 0 ? 8 : 400))
      // Of few letters, and often with the same beginning, so that many are the same.
      let beginning = [UInt8](repeating: 7, count: round % 12)
      var offered = (0..<Int(random.next() % 1200)).map { _ in
        beginning + (0...Int(random.next() % 5)).map { _ in UInt8(random.next() % 4) }
      }
      func isBefore(_ a: [UInt8], _ b: [UInt8]) -> Bool { a.lexicographicallyPrecedes(b) }
      // A store's come in order, and memory's in none; those of both come twice.
      if round % 2 == 0 {
        let all = offered
        offered.sort(by: isBefore)
        offered += all
      }
      page.begin(room: room)
      for key in offered {
        try key.span.withUnsafeBytes { key throws(Failure) in
          try page.insert(key)
        }
      }
      try page.order()
      let wanted = Set(offered).sorted(by: isBefore)
      expect(
        (0..<page.count).map { Array(page[$0]) } == Array(wanted.prefix(room)),
        "seed \(testSeed), round \(round)")
      expect(page.isCut == (wanted.count > room), "seed \(testSeed), round \(round)")
    }
  }
}
