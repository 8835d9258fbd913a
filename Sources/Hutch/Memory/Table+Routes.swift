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
    // A branch, so that what follows of the only segment does not wait for the hash.
    let at = depth == 0 ? 0 : index(hash)
    let segment = directory[at]
    let tag = segment.tag(hash)
    return Route(index: at, segment: segment, tag: tag, home: segment.home(tag))
  }

  /// The first word that may be a value's entry of this hash; nearly always it is, and has been
  /// found in the home line or the next one, without a loop. Nil: there is no entry.
  @inline(__always)
  func guess(_ route: Route) -> Place? {
    switch nearGuess(route) {
    case .place(let place): place
    case .none: nil
    case .later: laterGuess(route)
    }
  }

  enum NearGuess {
    case place(Place)
    /// There is no entry.
    case none
    /// Beyond the two lines.
    case later
  }

  /// The same, of the home line and the next one alone.
  @inline(__always)
  func nearGuess(_ route: Route) -> NearGuess {
    let line = route.segment.line(route.home)
    let matches = Matches(line, tag: route.tag, kind: 0)
    if _fastPath(!matches.isEmpty) { return .place(matches.first(of: line)) }
    if Table.hasEnd(line) { return .none }
    let second = Table.next(line, route.segment)
    let others = Matches(second, tag: route.tag, kind: 0)
    if _fastPath(!others.isEmpty) { return .place(others.first(of: second)) }
    return Table.hasEnd(second) ? .none : .later
  }

  @inline(never)
  @_optimize(speed)
  private func laterGuess(_ route: Route) -> Place? { firstGuess(route) }

  /// The same, with a loop alone.
  @inline(__always)
  func firstGuess(_ route: Route) -> Place? {
    var at = route.home
    repeat {
      let line = route.segment.line(at)
      let matches = Matches(line, tag: route.tag, kind: 0)
      if !matches.isEmpty { return matches.first(of: line) }
      if Table.hasEnd(line) { return nil }
      at = Table.next(at, route.segment)
    } while at != route.home
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
