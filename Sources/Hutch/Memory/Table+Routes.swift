import CSystem

/// A look for a key and the insertion of its entry that share the way from the hash to the line.
extension Table {
  /// Where the entries of a hash are. Valid until the table grows.
  struct Route {
    /// The index in the directory.
    fileprivate let index: Int
    fileprivate let segment: Segment
    fileprivate let tag: UInt64
    /// The number of the home line.
    fileprivate let home: Int
  }

  /// Nil: the table has never had an entry.
  @inline(__always)
  func route(_ hash: UInt64) -> Route? {
    guard let directory else { return nil }
    let at = index(hash)
    let segment = directory[at]
    let tag = segment.tag(hash)
    return Route(index: at, segment: segment, tag: tag, home: segment.home(tag))
  }

  /// The first word that may be a value's entry of this hash, in its home line or, if that is full,
  /// in the next one; nearly always it is, and has been found without a loop. Nil and `isAbsent`:
  /// there is none.
  @inline(__always)
  func guess(_ route: Route, isAbsent: inout Bool) -> Place? {
    let line = route.segment.line(route.home)
    let matches = Matches(line, tag: route.tag, kind: 0)
    if _fastPath(!matches.isEmpty) { return matches.first(of: line) }
    if Table.hasEnd(line) {
      isAbsent = true
      return nil
    }
    let second = route.segment.line(Table.next(route.home, route.segment))
    let others = Matches(second, tag: route.tag, kind: 0)
    if _fastPath(!others.isEmpty) { return others.first(of: second) }
    isAbsent = Table.hasEnd(second) || hasNone(route, behind: second)
    return nil
  }

  /// Whether no word behind a full line, which is not the home line, may be a value's entry.
  @inline(never)
  @_optimize(speed)
  private func hasNone(_ route: Route, behind line: Line) -> Bool {
    var at = Int(truncatingIfNeeded: UInt(bitPattern: line - route.segment.words) &>> 3)
    repeat {
      at = Table.next(at, route.segment)
      let line = route.segment.line(at)
      if !Matches(line, tag: route.tag, kind: 0).isEmpty { return false }
      if Table.hasEnd(line) { return true }
    } while at != route.home
    return true
  }

  /// The same, on whatever line that word is.
  @inline(__always)
  func firstGuess(_ route: Route, isAbsent: inout Bool) -> Place? {
    var at = route.home
    repeat {
      let line = route.segment.line(at)
      let matches = Matches(line, tag: route.tag, kind: 0)
      if !matches.isEmpty { return matches.first(of: line) }
      if Table.hasEnd(line) { break }
      at = Table.next(at, route.segment)
    } while at != route.home
    isAbsent = true
    return nil
  }

  /// How many entries the segment has. The table has had an entry.
  @inline(__always)
  func fill(_ route: Route) -> UnsafeMutablePointer<UInt32> {
    fills.unsafelyUnwrapped + firstIndex(route.index, route.segment)
  }

  /// Puts a word in, for which there is room.
  @inline(__always)
  mutating func insert(
    _ word: Word, _ route: Route, _ fill: UnsafeMutablePointer<UInt32>
  ) {
    Table.place(word.with(tag: route.tag), in: route.segment, home: route.home)
    fill.pointee &+= 1
    count &+= 1
  }
}

extension Table.Route {
  /// Whether one more entry has room without growth.
  @inline(__always)
  func hasRoom(_ fill: UnsafeMutablePointer<UInt32>) -> Bool {
    Int(truncatingIfNeeded: fill.pointee) < segment.room
  }
}
