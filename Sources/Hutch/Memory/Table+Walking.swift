/// Walks over a table in the order of hashes, and the table's invariants.
extension Table {
  // MARK: walking

  /// Segments in the order of hashes.
  @inline(never)
  func forEachSegment(_ body: (Segment, Int) -> Void) {
    guard let directory, let fills else { return }
    var at = 0
    while at < 1 << depth {
      let segment = directory[at]
      body(segment, Int(fills[at]))
      at += 1 << (depth - segment.depth)
    }
  }

  func forEach(_ body: (Word) -> Void) {
    forEachSegment { segment, _ in
      for lane in 0..<segment.lineCount * Table.wordsPerLine
      where !segment.words[lane].isVacant {
        body(segment.words[lane])
      }
    }
  }

  /// Calls `body` with the places of the entries that have the same home line as `hash` has, from
  /// the tag of `hash` on; it may store another word of the entry there. Returns the least hash
  /// that lies behind them; nil: there is none.
  @inline(never)
  func visitLine(at hash: UInt64, _ body: (Place) -> Void) -> UInt64? {
    guard count > 0 else { return nil }
    let segment = directory.unsafelyUnwrapped[index(hash)]
    let tag = segment.tag(hash)
    let home = segment.home(tag)
    var at = home
    repeat {
      let line = segment.line(at)
      // A loop over numbers would be unrolled.
      var place = line
      while place < line + Table.wordsPerLine && !place.pointee.isVacant {
        let other = place.pointee.tag
        if other >= tag && segment.home(other) == home { body(place) }
        place += 1
      }
      if Table.hasEnd(line) { break }
      at = Table.next(at, segment)
    } while at != home

    let depth = UInt64(segment.depth)
    let prefix = hash >> (64 - depth)
    if home + 1 < segment.lineCount {
      return prefix << (64 - depth)
        | segment.firstTag(ofLine: home + 1) << (64 - Table.tagBits - depth)
    }
    return depth == 0 || prefix + 1 == 1 << depth ? nil : (prefix + 1) << (64 - depth)
  }

  // MARK: invariants

  /// The invariant that does not hold, or nil.
  func violation() -> StaticString? {
    guard let directory, let fills else { return count == 0 ? nil : "entries without a table" }
    var found: StaticString?
    var sum = 0
    var at = 0
    while at < 1 << depth {
      let segment = directory[at]
      if segment.depth > depth { return "a segment is deeper than its directory" }
      let copies = 1 << (depth - segment.depth)
      if at % copies != 0 { return "a segment does not begin at an index of its own" }
      for i in 0..<copies where directory[at + i].bits != segment.bits {
        found = "a segment is not at all its indices"
      }
      var fill = 0
      for line in 0..<segment.lineCount {
        var vacant = false
        for lane in 0..<Table.wordsPerLine {
          let word = segment.line(line)[lane]
          if word.isVacant {
            vacant = true
            continue
          }
          if vacant { found = "a line is not packed" }
          fill += 1
          var before = segment.home(word.tag)
          while before != line {
            if Table.hasEnd(segment.line(before)) {
              found = "an entry cannot be reached from its home line"
            }
            before = Table.next(before, segment)
          }
        }
      }
      if fill != Int(fills[at]) { found = "a segment's count is wrong" }
      if fill > segment.roomIfFull { found = "a segment is too full" }
      sum += fill
      at += copies
    }
    return sum == count ? found : "the table's count is wrong"
  }
}
